-- ARGV: runner, now, the end of its lease. Returns whether it leads.
local runner, now, lease = take(), tonumber(take()), take()
local leader = call('HMGET', p .. 'leader', 'name', 'until')
if leader[1] and leader[1] ~= runner and tonumber(leader[2]) >= now then return 0 end
call('HSET', p .. 'leader', 'name', runner, 'until', lease)
return 1
