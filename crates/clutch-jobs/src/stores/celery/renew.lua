-- ARGV: runner, the number of its last round, the length of its lease, the time (seconds), the database's name as it was
-- known, the tags that it knows to hold. One that has had no round takes its lease, and so does one whose lease was
-- forgotten. Returns false when the lease had lapsed; otherwise the tags to be stopped, those that it holds, and the name
-- of the database. What it holds without knowing goes back to where others find it.
local runner, number, length, now, known_since = take(), take(), take(), take(), take()
local held = held_by(runner)
local problem = refused('cancelling', 'due', 'orphaned', 'renewals', 'since') or format_refused()
  or refusal('', { [held] = 'hash' }, { held })
if problem then return problem end
local name = since(runner, now)
local has_forgotten = known_since ~= '' and known_since ~= name
if number == '0' or has_forgotten then take_lease(runner, length) end
if not raise(runner, length) then return false end
local known = {}
while at < #ARGV do known[take()] = true end
local mine = {}
local found = call('HGETALL', held)
for nr = 1, #found, 2 do
  local tag, key = found[nr], found[nr + 1]
  if call('HEXISTS', unacked, tag) == 0 then
    call('HDEL', held, tag)
    forget(tag)
  elseif known[tag] then
    call('ZADD', index, 'XX', now, tag)
    mine[#mine + 1] = tag
  else
    call('HDEL', held, tag)
    call('HSET', p .. 'keys', tag, key)
    call('LPUSH', p .. 'due', tag)
  end
end
return { call('SMEMBERS', p .. 'cancelling'), mine, name }
