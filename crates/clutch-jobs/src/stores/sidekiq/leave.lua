-- ARGV: runner, the end of the name of the hash of what it runs.
local runner, suffix = take(), take()
local problem = refused('leader', 'orphaned', 'renewals') or format_refused('heartbeats', 'processes')
if problem then return problem end
call('HDEL', renewals, runner)
call('ZREM', n .. 'heartbeats', runner)
call('SREM', n .. 'processes', runner)
call('DEL', n .. runner, n .. runner .. suffix)
call('SADD', p .. 'orphaned', runner) -- until the next look has seen that it left nothing behind
if call('HGET', p .. 'leader', 'name') == runner then call('DEL', p .. 'leader') end
return 1
