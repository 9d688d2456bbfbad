-- ARGV: runner, the end of its lease, now, the ids that it holds.
-- Returns false when the lease had lapsed; otherwise the ids that are to be stopped.
-- After a write, a server that is full refuses no other one: whoever holds jobs must be able to end them.
call('DEL', p .. 'none')
local runner, lease, now = take(), take(), take()
if call('ZADD', p .. 'runners', 'XX', 'CH', lease, runner) == 0 and not call('ZSCORE', p .. 'runners', runner) then
  return false
end
local held = {}
for nr = at + 1, #ARGV do held[ARGV[nr]] = true end

-- The answer to its claim was lost.
local function release(id)
  local job = p .. 'job:' .. id
  local was = call('HMGET', job, 'attempt', 'queue', 'place', 'key', 'unique')
  local queue = was[2]
  stop_running(id, runner, queue)
  call('HINCRBY', job, 'attempt', -1)
  if is_cancelling(id) then
    push(removed, p .. 'cancelling', id)
    call('HSET', job, 'state', CANCELLED, 'finished', now, 'reason', 'cancelled')
    return finished(id, CANCELLED, queue, was[4], was[5], now)
  end
  call('HSET', job, 'state', AVAILABLE)
  count(AVAILABLE, queue, 1)
  offer(id, queue, was[3])
end

for _, id in ipairs(call('SMEMBERS', p .. 'running:' .. runner)) do
  if not held[id] then release(id) end
end
flush_endings()
local told = call('SINTER', p .. 'running:' .. runner, p .. 'cancelling')
finish()
return told
