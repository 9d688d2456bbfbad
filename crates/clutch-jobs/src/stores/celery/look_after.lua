-- ARGV: the time (seconds), how many messages at most, why what is rescued has failed, the leases that have lapsed
-- (end_leases). Makes due what is, and tells of what runners without a lease have left behind.
-- Returns all leases, how many became due, how many were rescued, and when the next is due.
local now, limit, why = take(), tonumber(take()), take()
local problem = refused('due', 'failing', 'failures', 'keys', 'orphaned', 'renewals', 'rescues', 'scheduled')
  or format_refused()
if problem then return problem end
for _, runner in ipairs(end_leases()) do call('SADD', p .. 'orphaned', runner) end

local staged = call('ZRANGEBYSCORE', p .. 'scheduled', '-inf', now, 'LIMIT', 0, limit)
for _, tag in ipairs(staged) do
  call('ZREM', p .. 'scheduled', tag)
  if call('ZADD', index, 'XX', 'CH', now, tag) == 1 or call('HEXISTS', unacked, tag) == 1 then
    call('RPUSH', p .. 'due', tag)
  else
    forget(tag)
  end
end

local rescued = 0
for _, runner in ipairs(call('SMEMBERS', p .. 'orphaned')) do
  local held = held_by(runner)
  if call('HEXISTS', renewals, runner) == 1 then
    call('SREM', p .. 'orphaned', runner)
  elseif is_sound(held, 'hash') then
    local found, left = call('HGETALL', held), false
    for nr = 1, #found, 2 do
      if rescued >= limit then left = true break end
      local tag, key = found[nr], found[nr + 1]
      call('HDEL', held, tag)
      if call('HEXISTS', unacked, tag) == 1 then
        call('ZADD', index, 'XX', now, tag)
        call('HSET', p .. 'keys', tag, key)
        if call('HEXISTS', p .. 'failures', tag) == 0 then call('HSET', p .. 'failures', tag, why) end
        call('HINCRBY', p .. 'rescues', tag, 1)
        call('RPUSH', p .. 'failing', tag)
        rescued = rescued + 1
      else
        forget(tag)
      end
    end
    if not left then call('SREM', p .. 'orphaned', runner) end
  end
end

-- What waits outside of its queue is not taken for abandoned.
for _, name in ipairs({ 'failing', 'due' }) do
  for _, tag in ipairs(call('LRANGE', p .. name, 0, limit - 1)) do call('ZADD', index, 'XX', now, tag) end
end
local next_due = call('ZRANGE', p .. 'scheduled', 0, 0, 'WITHSCORES')
return { all_leases(), #staged, rescued, next_due[2] or '' }
