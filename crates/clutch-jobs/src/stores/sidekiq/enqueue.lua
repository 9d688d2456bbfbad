-- ARGV: of each job: 'queue' or 'schedule', its queue, its time, its payload. Refuses all where one cannot be put there.
local FIELDS = 4
local problem = format_refused('queues', 'schedule')
if problem then return problem end
for first = 1, #ARGV, FIELDS do
  if not is_possible(ARGV[first], ARGV[first + 1]) then return redis.error_reply('DAMAGED ' .. damage[1]) end
end
while at < #ARGV do put(take(), take(), take(), take()) end
return 1
