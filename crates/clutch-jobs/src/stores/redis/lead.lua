-- ARGV: runner, the length of its lease, the leases that have lapsed (end_leases). Returns whether it leads, and all
-- leases.
local runner, length = take(), take()

-- A version before kept leases as times: they are watched as others from now on.
for _, old in ipairs({ p .. 'runners', p .. 'leases' }) do
  for _, holder in ipairs(call('ZRANGE', old, 0, -1)) do call('HSETNX', renewals, holder, '0 30000') end
  call('DEL', old)
end

local leader = call('HGET', p .. 'leader', 'name')
end_leases(leader or '')
local leads = not leader or leader == runner or not counter_of(call('HGET', renewals, leader))
if leads then
  call('HSET', p .. 'leader', 'name', runner)
  take_lease(runner, length)
  raise(runner, length)
end
return { leads and 1 or 0, all_leases() }
