-- ARGV: a queue, an id. Returns the entry of a plain job that waits there, or false: it may be where only whoever looks at
-- all entries finds it.
local inbox, id = p .. 'inbox:' .. take(), take()
if not is_sound(inbox, 'list') then return false end
local place = place_in(inbox, id)
for _, entry in ipairs(call('LRANGE', inbox, math.max(0, place - AROUND), place + AROUND)) do
  if id_of(entry) == id then return entry end
end
return false
