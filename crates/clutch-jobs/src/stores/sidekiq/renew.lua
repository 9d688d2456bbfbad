-- ARGV: runner, the number of its last round, the length of its lease, the time (seconds), the end of the name of the
-- hash of what it runs, how many fields its heartbeat has, these, then the fields of that hash. One that has had no round
-- takes its lease.
-- Returns false when the lease had lapsed; otherwise the ids to be stopped, then queue and payload of each job it
-- holds.
local runner, number, length, now, suffix = take(), take(), take(), take(), take()
local work = n .. runner .. suffix
local problem = refused('cancelling', 'orphaned', 'queues', 'renewals')
  or format_refused('heartbeats', 'processes')
  or refusal(n, { [runner] = 'hash' }, { runner })
if problem then return problem end
if number == '0' then take_lease(runner, length) end
if not raise(runner, length) then return false end
local HEARTBEAT_SECONDS = 60
call('ZADD', n .. 'heartbeats', now, runner) -- of Exq
call('SADD', n .. 'processes', runner)
local fields = tonumber(take())
call('HSET', n .. runner, unpack(ARGV, at + 1, at + fields))
call('EXPIRE', n .. runner, HEARTBEAT_SECONDS)
call('DEL', work)
for nr = at + fields + 1, #ARGV, 2 do call('HSET', work, ARGV[nr], ARGV[nr + 1]) end
call('EXPIRE', work, HEARTBEAT_SECONDS)
local told = { call('SMEMBERS', p .. 'cancelling') }
for _, queue in ipairs(call('SMEMBERS', p .. 'queues')) do
  local backup = backup_of(runner, queue)
  for _, payload in ipairs(is_sound(backup, 'list') and call('LRANGE', backup, 0, -1) or {}) do
    told[#told + 1] = queue
    told[#told + 1] = payload
  end
end
return told
