-- Of each queue its name, settings, counts by state, and when its first available job became that.
local told = {}
for at, queue in ipairs(redis.call('SMEMBERS', P .. 'queues')) do
  local found = redis.call('HMGET', P .. 'queue:' .. queue, 'paused', 'most', '0', '1', '2', '3', '4', '5')
  local first = redis.call('ZRANGE', P .. 'ready:' .. queue, 0, 0)
  found[9] = first[1] and redis.call('HGET', P .. 'job:' .. first[1], 't') or false
  found[10] = queue
  told[at] = found
end
return told
