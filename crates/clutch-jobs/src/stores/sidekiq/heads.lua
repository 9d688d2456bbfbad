-- ARGV: names of queues; none: all. Returns what tells whether one has got a job since: how long each is, and its
-- newest job.
local told = {}
local queues = #ARGV > 0 and ARGV or call('SMEMBERS', n .. 'queues')
for nr, queue in ipairs(queues) do
  local key = n .. 'queue:' .. queue
  told[nr] = call('LLEN', key) .. redis.sha1hex(call('LINDEX', key, 0) or '')
end
return table.concat(told, ' ')
