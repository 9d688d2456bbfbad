-- ARGV: runner, the number of its last round, the length of its lease, the time (seconds), the tags that it knows to hold.
-- One that has had no round takes its lease. Returns false when the lease had lapsed; otherwise the tags to be stopped, and
-- those that it holds. What it holds without knowing goes back to where others find it.
local runner, number, length, now = take(), take(), take(), take()
local held = held_by(runner)
local problem = refused('cancelling', 'due', 'orphaned', 'renewals') or format_refused()
  or refusal('', { [held] = 'hash' }, { held })
if problem then return problem end
if number == '0' then take_lease(runner, length) end
if not raise(runner, length) then return false end
local known = {}
while at < #ARGV do known[take()] = true end
local mine = {}
local found = call('HGETALL', held)
for nr = 1, #found, 2 do
  local tag, key = found[nr], found[nr + 1]
  if call('HEXISTS', unacked, tag) == 0 then
    call('HDEL', held, tag)
  elseif known[tag] then
    call('ZADD', index, 'XX', now, tag)
    mine[#mine + 1] = tag
  else
    call('HDEL', held, tag)
    call('HSET', p .. 'keys', tag, key)
    call('LPUSH', p .. 'due', tag)
  end
end
return { call('SMEMBERS', p .. 'cancelling'), mine }
