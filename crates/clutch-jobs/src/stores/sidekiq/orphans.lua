-- ARGV: how many jobs at most, the leases that have lapsed (end_leases). Returns all leases, what is left alone since its
-- key is damaged, then of each job of runners without a lease: runner, queue, payload.
local limit = tonumber(take())
local problem = refused('orphaned', 'queues', 'renewals') or format_refused('heartbeats', 'processes')
if problem then return problem end
for _, runner in ipairs(end_leases()) do
  call('ZREM', n .. 'heartbeats', runner)
  call('SREM', n .. 'processes', runner)
  call('SADD', p .. 'orphaned', runner)
end
local told = { all_leases(), damage }
for _, runner in ipairs(call('SMEMBERS', p .. 'orphaned')) do
  local found = 0
  for _, queue in ipairs(call('SMEMBERS', p .. 'queues')) do
    local backup = backup_of(runner, queue)
    local is_usable = is_sound(backup, 'list')
    if not is_usable then found = found + 1 end
    for _, payload in ipairs(is_usable and call('LRANGE', backup, 0, limit - 1) or {}) do
      found = found + 1
      told[#told + 1] = runner
      told[#told + 1] = queue
      told[#told + 1] = payload
    end
  end
  if found == 0 then call('SREM', p .. 'orphaned', runner) end
end
return told
