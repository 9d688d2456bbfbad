-- ARGV: now, most jobs of each kind; before when completed jobs have ended that go early (empty: none), and from which
-- place on; how long completed, cancelled and dead jobs are kept whose runner did not say; how
-- often a job is rescued at most; the kind of a lapsed lease's error, and its message before and after the runner's
-- name; the leases that have lapsed (end_leases).
-- Returns how many were staged, rescued, buried, deleted and passed on; how many of the deleted went early, and from which
-- place on the next may; when the next is due, all leases, and what is left alone since its key is damaged, and batches
-- that nobody brings in any more.
local now, limit = take(), tonumber(take())
local early, from_place = tonumber(take()), tonumber(take())
local kept = { [COMPLETED] = take(), [CANCELLED] = take(), [DEAD] = take() }
local rescues_max, kind, message, message_end = tonumber(take()), take(), take(), take()
local staged, rescued, buried, pruned, pruned_early = 0, 0, 0, 0, 0

local damaged = refused('arrivals', unpack(ENDING_KINDS))
if damaged then return damaged end

-- ---- prune

local function delete(id, state)
  local queue = fields_of(id, 'queue')[1]
  if queue then
    call('DEL', p .. 'job:' .. id, p .. 'body:' .. id, p .. 'errors:' .. id)
  else
    local _, _, _, of = claim_of(call('HGET', p .. 'done', id) or '')
    queue = of
    call('HDEL', p .. 'done', id)
  end
  call('ZREM', p .. 'all', id)
  forget_links(id)
  if queue then count(state, queue, -1) end
  pruned = pruned + 1
end

local PASSING_PAUSE = 1000 -- milliseconds

for state, time in pairs(kept) do
  local undecided, decided = call('ZRANGE', p .. 'ended:' .. state, 0, limit - 1, 'WITHSCORES'), {}
  local ids = {}
  for nr = 1, #undecided, 2 do
    local id, keep_until = undecided[nr], tonumber(fields_of(undecided[nr], 'until')[1] or nil) or 0
    ids[#ids + 1] = id
    push(decided, state, digits(math.max(undecided[nr + 1] + time, keep_until)), id)
  end
  many('ZADD', p .. 'delete:' .. state, decided[state] or {})
  many('ZREM', p .. 'ended:' .. state, ids)
  local over = call('ZRANGEBYSCORE', p .. 'delete:' .. state, '-inf', '(' .. now, 'LIMIT', 0, limit)
  local deleted = {}
  for _, id in ipairs(over) do
    if state == COMPLETED and call('ZSCORE', p .. 'passing', id) then
      -- Its result is yet to be passed on.
      call('ZADD', p .. 'delete:' .. state, digits(now + PASSING_PAUSE), id)
    else
      delete(id, state)
      deleted[#deleted + 1] = id
    end
  end
  many('ZREM', p .. 'delete:' .. state, deleted)
end

-- Whether a completed job had ended by then, and nobody is to get its result any more.
local function may_go(id, before)
  local was = fields_of(id, 'queue', 'finished', 'until')
  local finished = was[1] and was[2] or claim_of(call('HGET', p .. 'done', id) or '')
  if (tonumber(was[3] or nil) or 0) > tonumber(now) or call('ZSCORE', p .. 'passing', id) then return false end
  return (tonumber(finished or nil) or math.huge) < before
end

if early then
  local line, gone = p .. 'delete:' .. COMPLETED, {}
  local next_ones = call('ZRANGE', line, from_place, from_place + limit - 1)
  for _, id in ipairs(next_ones) do
    if may_go(id, early) then
      delete(id, COMPLETED)
      gone[#gone + 1] = id
    end
  end
  many('ZREM', line, gone)
  pruned_early = #gone
  from_place = #next_ones < limit and 0 or from_place + #next_ones - #gone
end

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
  local was = fields_of(id, 'attempt', 'queue', 'place', 'key', 'unique', 'rescues')
  local attempt, queue, rescues = tonumber(was[1]) or 1, was[2], tonumber(was[6] or 0) or 0
  if not queue or not number_of(was[3]) then
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

-- What leaves where it is found, once it is where it goes.
local leaving, freed = {}, {}

local function rescue_from(runner)
  local running, is_left = p .. 'running:' .. runner, false
  if not is_sound(running, 'hash') then return end
  for _, id in ipairs(call('HKEYS', running)) do
    if rescued >= limit then return end
    local claim = call('HGET', running, id)
    local _, _, _, queue = claim_of(claim)
    if queue and not is_open(queue) then
      is_left = true
    else
      rescue(id, runner, claim)
      push(leaving, running, id)
      rescued = rescued + 1
    end
  end
  if not is_left then freed[#freed + 1] = runner end
end

for _, runner in ipairs(end_leases()) do
  if call('EXISTS', p .. 'running:' .. runner) == 1 then call('SADD', p .. 'orphaned', runner) end
end
local leases = all_leases()
for _, runner in ipairs(call('SMEMBERS', p .. 'orphaned')) do rescue_from(runner) end

local passed = pass_on(limit, now)

-- ---- stage

local function is_keyed(key) return not key or is_sound(p .. 'key:' .. key, 'zset') end

local put_off = {}
local due = call('ZRANGEBYSCORE', p .. 'scheduled', '-inf', now, 'LIMIT', 0, limit)
for _, id in ipairs(due) do
  local job = p .. 'job:' .. id
  local was = fields_of(id, 'queue', 'place', 'key', 'key_limit')
  if was[1] and number_of(was[2]) and not (is_open(was[1]) and is_keyed(was[3])) then
    put_off[#put_off + 1] = digits(now + DAMAGED_PAUSE)
    put_off[#put_off + 1] = id
  elseif was[1] and number_of(was[2]) then
    call('HSET', job, 'state', AVAILABLE)
    count(SCHEDULED, was[1], -1)
    count(AVAILABLE, was[1], 1)
    make_available(id, was[1], was[2], was[3], was[4])
  else
    set_aside(id)
  end
end
staged = #due - #put_off / 2
flush_endings()

-- ---- keys whose jobs wait for others: one that holds no place any more, since its record is gone or was changed by
-- somebody, makes room; a few of one key in each look

local MEMBERS_MAX = 100

local function sweep(key)
  local members = p .. 'key:' .. key
  if not is_sound(members, 'zset') then return end
  local active = call('ZCOUNT', members, ACTIVE, ACTIVE)
  if active == call('ZCARD', members) then return call('SREM', p .. 'holding', key) end
  local from = call('TIME')[2] % math.max(1, active - MEMBERS_MAX + 1)
  for _, id in ipairs(call('ZRANGE', members, from, math.min(from + MEMBERS_MAX, active) - 1)) do
    local state = fields_of(id, 'state')[1]
    if not state or state >= COMPLETED then call('ZREM', members, id) end
  end
  fill_key(key)
end

local key = call('SRANDMEMBER', p .. 'holding')
if key then sweep(key) end

-- ---- batches whose program has ended before all of their jobs had come

local ARRIVALS_MAX, ARRIVE_SECONDS = 3, 5
local before = call('TIME')[1] - ARRIVE_SECONDS
local arrivals = call('ZRANGEBYSCORE', p .. 'arrivals', '-inf', before, 'LIMIT', 0, ARRIVALS_MAX)

finish()
for running, ids in pairs(leaving) do many('HDEL', running, ids) end
many('SREM', p .. 'orphaned', freed)
many('ZREM', p .. 'scheduled', due)
many('ZADD', p .. 'scheduled', put_off)
local next_due = call('ZRANGE', p .. 'scheduled', 0, 0, 'WITHSCORES')[2]
return { staged, rescued, buried, pruned, passed, pruned_early, from_place, next_due or false, leases, damage, arrivals }
