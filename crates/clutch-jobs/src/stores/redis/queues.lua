-- Returns the counts, the settings, and of each queue the time since when its first job waits.
local counts = call('HGETALL', p .. 'counts')
local oldest = {}
for nr = 1, #counts, 2 do
  if string.sub(counts[nr], 1, 2) == AVAILABLE .. ':' then
    local queue = string.sub(counts[nr], 3)
    local first = call('ZRANGE', p .. 'ready:' .. queue, 0, 0)[1]
    local due = first and call('HGET', p .. 'job:' .. first, 'due')
    if due then
      oldest[#oldest + 1] = queue
      oldest[#oldest + 1] = due
    end
  end
end
return { counts, call('HGETALL', p .. 'settings'), oldest }
