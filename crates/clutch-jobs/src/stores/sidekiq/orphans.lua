-- ARGV: how many jobs at most, the leases that have lapsed (end_leases). Returns all leases, then of each job of runners
-- without a lease: runner, queue, payload.
local limit = tonumber(take())
for _, runner in ipairs(end_leases()) do
  call('ZREM', n .. 'heartbeats', runner)
  call('SREM', n .. 'processes', runner)
  call('SADD', p .. 'orphaned', runner)
end
local told = { all_leases() }
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
