-- ARGV: names of queues; none: all. Returns how long those are that have jobs and are not paused, so that a runner with
-- a free slot finds some.
local problem = format_refused('paused', 'queues')
if problem then return problem end
local told = {}
local queues = #ARGV > 0 and ARGV or call('SMEMBERS', n .. 'queues')
for _, queue in ipairs(queues) do
  local length = is_open(queue) and call('LLEN', n .. 'queue:' .. queue) or 0
  if length > 0 and call('SISMEMBER', n .. 'paused', queue) == 0 then told[#told + 1] = queue .. ' ' .. length end
end
return table.concat(told, '\n')
