-- ARGV: what is added to the server's clock (milliseconds), how many at most. Returns of each job of runners whose
-- lease has lapsed: runner, queue, payload.
local shift, limit = take(), tonumber(take())
for _, runner in ipairs(call('ZRANGEBYSCORE', p .. 'leases', '-inf', '(' .. digits(clock(shift)))) do
  call('ZREM', p .. 'leases', runner)
  call('ZREM', n .. 'heartbeats', runner)
  call('SREM', n .. 'processes', runner)
  call('SADD', p .. 'orphaned', runner)
end
local told = {}
for _, runner in ipairs(call('SMEMBERS', p .. 'orphaned')) do
  local found = 0
  for _, queue in ipairs(call('SMEMBERS', p .. 'queues')) do
    for _, payload in ipairs(call('LRANGE', backup_of(runner, queue), 0, limit - 1)) do
      found = found + 1
      told[#told + 1] = runner
      told[#told + 1] = queue
      told[#told + 1] = payload
    end
  end
  if found == 0 then call('SREM', p .. 'orphaned', runner) end
end
return told
