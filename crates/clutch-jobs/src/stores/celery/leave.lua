-- ARGV: runner.
local runner = take()
local problem = refused('leader', 'orphaned', 'renewals')
if problem then return problem end
call('HDEL', renewals, runner)
call('SADD', p .. 'orphaned', runner) -- until the next look has seen that it left nothing behind
if call('HGET', p .. 'leader', 'name') == runner then call('DEL', p .. 'leader') end
return 1
