-- ARGV: runner, now, the end of its lease. Returns whether it leads.
-- After a write, a server that is full refuses no other one: whoever holds jobs must be able to end them.
call('DEL', p .. 'none')
local runner, now, lease = take(), tonumber(take()), take()
local leader = call('HMGET', p .. 'leader', 'name', 'until')
if leader[1] and leader[1] ~= runner and tonumber(leader[2]) >= now then return 0 end
call('HSET', p .. 'leader', 'name', runner, 'until', lease)
return 1
