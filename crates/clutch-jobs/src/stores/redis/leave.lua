-- ARGV: runner.
local runner = take()
local unusable = refused('leader', 'orphaned', 'renewals')
if unusable then return unusable end
call('HDEL', renewals, runner)
-- What it left behind is for the next look to rescue.
if call('EXISTS', p .. 'running:' .. runner) == 1 then call('SADD', p .. 'orphaned', runner) end
if call('HGET', p .. 'leader', 'name') == runner then call('DEL', p .. 'leader') end
return 1
