-- ARGV: now, most jobs of each kind; before when completed, cancelled and dead jobs have finished to be deleted; how often
-- a job is rescued at most; the kind of a lapsed lease's error, and its message before and after the runner's name.
-- Returns how many were staged, rescued, buried and deleted, and when the next is due.
local now, limit = take(), tonumber(take())
local before = { ['3'] = take(), ['4'] = take(), ['5'] = take() }
local rescues_max, kind, message, message_end = tonumber(take()), take(), take(), take()
local DEAD = '5'
local staged, rescued, buried, pruned = 0, 0, 0, 0

-- ---- rescue

local function lapsed(attempt, runner)
  local text = message .. runner .. message_end
  return cjson.encode({ at = tonumber(now), attempt = attempt, kind = kind, message = text, traceback = '' })
end

local function state_after(id, rescues)
  if is_cancelling(id) then
    push(removed, p .. 'cancelling', id)
    return CANCELLED
  end
  return rescues < rescues_max and AVAILABLE or DEAD
end

local function rescue(id, runner)
  local job = p .. 'job:' .. id
  local was = call('HMGET', job, 'attempt', 'queue', 'place', 'key', 'unique', 'rescues')
  local attempt, queue, rescues = tonumber(was[1]), was[2], tonumber(was[6] or 0)
  local state = state_after(id, rescues)
  count(RUNNING, queue, -1)
  add_error(id, lapsed(attempt, runner))
  call('HSET', job, 'state', state, 'attempt', attempt - 1, 'rescues', rescues + 1)
  if state == AVAILABLE then
    count(state, queue, 1)
    return offer(id, queue, was[3])
  end
  call('HSET', job, 'finished', now)
  finished(id, state, queue, was[4], was[5], now)
  if state == DEAD then buried = buried + 1 end
end

for _, runner in ipairs(call('ZRANGEBYSCORE', p .. 'runners', '-inf', '(' .. now)) do
  call('ZREM', p .. 'runners', runner)
  if call('EXISTS', p .. 'running:' .. runner) == 1 then call('SADD', p .. 'orphaned', runner) end
end
for _, runner in ipairs(call('SMEMBERS', p .. 'orphaned')) do
  local running = p .. 'running:' .. runner
  for _, id in ipairs(call('SPOP', running, limit - rescued)) do
    rescue(id, runner)
    rescued = rescued + 1
  end
  if call('EXISTS', running) == 0 then call('SREM', p .. 'orphaned', runner) end
end

-- ---- stage

local due = call('ZRANGEBYSCORE', p .. 'scheduled', '-inf', now, 'LIMIT', 0, limit)
for _, id in ipairs(due) do
  local job = p .. 'job:' .. id
  local was = call('HMGET', job, 'queue', 'place', 'key')
  call('HSET', job, 'state', AVAILABLE)
  count(SCHEDULED, was[1], -1)
  count(AVAILABLE, was[1], 1)
  make_available(id, was[1], was[2], was[3])
end
many('ZREM', p .. 'scheduled', due)
staged = #due
flush_endings()

-- ---- prune

local function delete(id, state, queue)
  call('DEL', p .. 'job:' .. id, p .. 'body:' .. id, p .. 'errors:' .. id)
  call('ZREM', p .. 'all', id)
  count(state, queue, -1)
  pruned = pruned + 1
end

for state, time in pairs(before) do
  local ended = call('ZRANGEBYSCORE', p .. 'ended:' .. state, '-inf', '(' .. time, 'LIMIT', 0, limit)
  local kept = {}
  for _, id in ipairs(ended) do
    local was = call('HMGET', p .. 'job:' .. id, 'queue', 'until')
    if was[2] and tonumber(was[2]) >= tonumber(now) then
      kept[#kept + 1] = was[2]
      kept[#kept + 1] = id
    else
      delete(id, state, was[1])
    end
  end
  many('ZREM', p .. 'ended:' .. state, ended)
  -- Their results are kept for longer: out of the way of what comes next.
  many('ZADD', p .. 'kept', kept)
end
local kept = call('ZRANGEBYSCORE', p .. 'kept', '-inf', '(' .. now, 'LIMIT', 0, limit)
for _, id in ipairs(kept) do delete(id, COMPLETED, call('HGET', p .. 'job:' .. id, 'queue')) end
many('ZREM', p .. 'kept', kept)

finish()
local next_due = call('ZRANGE', p .. 'scheduled', 0, 0, 'WITHSCORES')[2]
return { staged, rescued, buried, pruned, next_due or false }
