-- ARGV: a queue, an id. Returns the entry of a plain job that waits there, or false: the entries are in the order of
-- their ids but for programs whose clocks differ, so it may be where only whoever looks at all of them finds it.
local inbox, id = p .. 'inbox:' .. take(), take()
local AROUND = 50
if not is_sound(inbox, 'list') then return false end
local first, last = 0, call('LLEN', inbox) - 1
while first <= last do
  local middle = math.floor((first + last) / 2)
  local entry = call('LINDEX', inbox, middle)
  local found = id_of(entry)
  if found == id then return entry end
  -- The newest are first.
  if found > id then first = middle + 1 else last = middle - 1 end
end
for _, entry in ipairs(call('LRANGE', inbox, math.max(0, first - AROUND), first + AROUND)) do
  if id_of(entry) == id then return entry end
end
return false
