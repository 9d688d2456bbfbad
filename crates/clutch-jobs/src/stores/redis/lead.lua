-- ARGV: runner, the length of its lease, what is added to the server's clock (milliseconds). Returns whether it leads.
local runner, lease, now = take(), take(), clock(take())
local leader = call('HMGET', p .. 'leader', 'name', 'until')
if leader[1] and leader[1] ~= runner and (tonumber(leader[2]) or 0) >= now then return 0 end
call('HSET', p .. 'leader', 'name', runner, 'until', digits(now + lease))
return 1
