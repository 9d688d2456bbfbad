-- ARGV: runner, the length of its lease, the leases that have lapsed (end_leases). Returns whether it leads, and all
-- leases.
local runner, length = take(), take()

local unusable = refused('leader', 'orphaned', 'renewals')
if unusable then return unusable end

local leader = call('HGET', p .. 'leader', 'name')
end_leases(leader or '')
local leads = not leader or leader == runner or not counter_of(call('HGET', renewals, leader))
if leads then
  call('HSET', p .. 'leader', 'name', runner)
  take_lease(runner, length)
  raise(runner, length)
end
return { leads and 1 or 0, all_leases() }
