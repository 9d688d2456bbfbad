-- ARGV: now, most jobs of each kind; before when completed, cancelled and dead jobs have finished to be deleted; how
-- often a job is rescued at most; the kind of a lapsed lease's error, and its message before and after the runner's
-- name; the leases that have lapsed (end_leases).
-- Returns how many were staged, rescued, buried and deleted, when the next is due, and all leases.
local now, limit = take(), tonumber(take())
local before = { ['3'] = take(), ['4'] = take(), ['5'] = take() }
local rescues_max, kind, message, message_end = tonumber(take()), take(), take(), take()
local DEAD = '5'
local staged, rescued, buried, pruned = 0, 0, 0, 0

-- ---- prune

local function delete(id, state)
  local queue = call('HGET', p .. 'job:' .. id, 'queue')
  if queue then
    call('DEL', p .. 'job:' .. id, p .. 'body:' .. id, p .. 'errors:' .. id)
  else
    local _, _, _, of = claim_of(call('HGET', p .. 'done', id) or '')
    queue = of
    call('HDEL', p .. 'done', id)
  end
  call('ZREM', p .. 'all', id)
  if queue then count(state, queue, -1) end
  pruned = pruned + 1
end

for state, time in pairs(before) do
  local ended = call('ZRANGEBYSCORE', p .. 'ended:' .. state, '-inf', '(' .. time, 'LIMIT', 0, limit)
  local kept = {}
  for _, id in ipairs(ended) do
    local keep_until = call('HGET', p .. 'job:' .. id, 'until')
    if keep_until and (tonumber(keep_until) or 0) >= tonumber(now) then
      kept[#kept + 1] = keep_until
      kept[#kept + 1] = id
    else
      delete(id, state)
    end
  end
  many('ZREM', p .. 'ended:' .. state, ended)
  -- Their results are kept for longer: out of the way of what comes next.
  many('ZADD', p .. 'kept', kept)
end
local kept = call('ZRANGEBYSCORE', p .. 'kept', '-inf', '(' .. now, 'LIMIT', 0, limit)
for _, id in ipairs(kept) do delete(id, COMPLETED) end
many('ZREM', p .. 'kept', kept)

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

local function rescue(id, runner, claim)
  local job = p .. 'job:' .. id
  write_claimed(id, claim, RUNNING)
  local was = call('HMGET', job, 'attempt', 'queue', 'place', 'key', 'unique', 'rescues')
  local attempt, queue, rescues = tonumber(was[1]) or 1, was[2], tonumber(was[6] or 0) or 0
  if not queue or not was[3] then
    local _, _, _, of = claim_of(claim)
    return set_aside(id, RUNNING, of)
  end
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

local function rescue_from(runner)
  local running = p .. 'running:' .. runner
  for _, id in ipairs(call('HKEYS', running)) do
    if rescued >= limit then return end
    rescue(id, runner, call('HGET', running, id))
    call('HDEL', running, id)
    rescued = rescued + 1
  end
  call('SREM', p .. 'orphaned', runner)
end

for _, runner in ipairs(end_leases()) do
  if call('EXISTS', p .. 'running:' .. runner) == 1 then call('SADD', p .. 'orphaned', runner) end
end
local leases = all_leases()
for _, runner in ipairs(call('SMEMBERS', p .. 'orphaned')) do rescue_from(runner) end

-- ---- stage

local due = call('ZRANGEBYSCORE', p .. 'scheduled', '-inf', now, 'LIMIT', 0, limit)
for _, id in ipairs(due) do
  local job = p .. 'job:' .. id
  local was = call('HMGET', job, 'queue', 'place', 'key', 'key_limit')
  if was[1] and was[2] then
    call('HSET', job, 'state', AVAILABLE)
    count(SCHEDULED, was[1], -1)
    count(AVAILABLE, was[1], 1)
    make_available(id, was[1], was[2], was[3], was[4])
  else
    set_aside(id)
  end
end
many('ZREM', p .. 'scheduled', due)
staged = #due
flush_endings()

finish()
local next_due = call('ZRANGE', p .. 'scheduled', 0, 0, 'WITHSCORES')[2]
return { staged, rescued, buried, pruned, next_due or false, leases }
