-- Returns who leads, all leases, and of each, in their order, how many jobs its holder has claimed (running_of).
local unusable = refused('leader', 'renewals')
if unusable then return unusable end
local found, told, running = call('HGETALL', renewals), {}, {}
for nr = 1, #found, 2 do
  if counter_of(found[nr + 1]) then
    told[#told + 1], told[#told + 2] = found[nr], found[nr + 1]
    running[#running + 1] = running_of(found[nr])
  end
end
return { call('HGET', p .. 'leader', 'name') or '', told, running }
