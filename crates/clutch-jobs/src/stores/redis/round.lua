-- ARGV: runner, now, the end of its lease, how many it wants; how many queues, and each; how many notes, and of each: id,
-- attempt, checkpoint, progress; how many endings, and of each: id, attempt, state, attempts, due, error, result, until
-- when it is kept, reason. What is empty is none.
-- Returns the ids that could not be settled, then of each claimed job: id, body, attempt, attempts_max, checkpoint.
local runner, now, lease, limit = take(), take(), take(), tonumber(take())
local queues = {}
for nr = 1, tonumber(take()) do queues[nr] = take() end

-- A script that has written goes on when the memory is full. What has ended must be settled even then.
call('DEL', p .. 'none')

local function note(id, attempt, checkpoint, progress)
  local job = p .. 'job:' .. id
  local was = call('HMGET', job, 'state', 'runner', 'attempt')
  if was[1] ~= RUNNING or was[2] ~= runner or was[3] ~= attempt then return end
  if checkpoint ~= '' then call('HSET', job, 'checkpoint', checkpoint) end
  if progress ~= '' then call('HSET', job, 'progress', progress) end
end

for _ = 1, tonumber(take()) do note(take(), take(), take(), take()) end

-- ---- settle

local endings = tonumber(take())
local are_cancelling = endings > 0 and call('EXISTS', p .. 'cancelling') == 1

-- Whether the job was still this runner's.
local function settle(id, attempt, state, attempts, due, problem, result, keep_until, reason)
  local job = p .. 'job:' .. id
  local was =
    call('HMGET', job, 'state', 'runner', 'attempt', 'queue', 'place', 'key', 'unique', 'reason', 'checkpoint')
  if was[1] ~= RUNNING or was[2] ~= runner or was[3] ~= attempt then return false end
  local queue, key = was[4], was[6]
  if are_cancelling and is_cancelling(id) then
    push(removed, p .. 'cancelling', id)
    -- Somebody was told that it is cancelled: it does not run again.
    if state == SCHEDULED or state == AVAILABLE then state, reason = CANCELLED, 'cancelled' end
  end
  stop_running(id, runner, queue)
  local fields = { 'state', state, 'attempt', attempts }
  local function with(field, value)
    fields[#fields + 1] = field
    fields[#fields + 1] = value
  end
  if reason then with('reason', reason) elseif was[8] then call('HDEL', job, 'reason') end
  if problem ~= '' then add_error(id, problem) end
  if state == SCHEDULED then
    with('due', due)
    push(added, p .. 'scheduled', due, id)
    count(state, queue, 1)
    if key then leave_key(id, key) end
  elseif state == AVAILABLE then
    count(state, queue, 1)
    offer(id, queue, was[5]) -- it is still the one of its key that may run
  else
    with('finished', now)
    if result ~= '' then
      with('result', result)
      with('until', keep_until)
    end
    if state == COMPLETED and was[9] then call('HDEL', job, 'checkpoint') end
    finished(id, state, queue, key, was[7], now)
  end
  call('HSET', job, unpack(fields))
  return true
end

local lost = {}
for _ = 1, endings do
  local id = take()
  if not settle(id, take(), take(), take(), take(), take(), take(), take(), take_optional()) then
    lost[#lost + 1] = id
  end
end
flush_endings()

-- ---- claim

local told, claimed, bodies = { lost }, {}, {}

-- Most jobs that the queue gives.
local function most_of(queue, is_paused, most)
  local left = limit - #claimed
  if is_paused == '1' then return 0 end
  if most then return math.min(left, most - running_of(queue)) end
  return left
end

local function claim(queue, most)
  if most <= 0 then return end
  local popped = call('ZPOPMIN', p .. 'ready:' .. queue, most)
  for nr = 1, #popped, 2 do
    local id = popped[nr]
    local job = p .. 'job:' .. id
    local was = call('HMGET', job, 'attempt', 'max', 'checkpoint')
    local attempt = (was[1] or 0) + 1
    call('HSET', job, 'state', RUNNING, 'attempt', attempt, 'runner', runner, 'at', now)
    claimed[#claimed + 1] = id
    bodies[#bodies + 1] = p .. 'body:' .. id
    local last = #told
    told[last + 1], told[last + 2] = id, false
    told[last + 3], told[last + 4], told[last + 5] = attempt, was[2], was[3]
  end
  count(AVAILABLE, queue, -#popped / 2)
  count(RUNNING, queue, #popped / 2)
end

local function read_bodies()
  for from = 1, #bodies, CHUNK do
    local found = call('MGET', unpack(bodies, from, math.min(from + CHUNK - 1, #bodies)))
    for nr = 1, #found do told[5 * (from + nr - 1) - 2] = found[nr] end
  end
end

if limit > 0 and #queues > 0 then
  flush_offered()
  if call('ZADD', p .. 'runners', 'NX', lease, runner) == 1 then call('SREM', p .. 'orphaned', runner) end
  local names = {}
  for nr, queue in ipairs(queues) do
    names[2 * nr - 1], names[2 * nr] = 'paused:' .. queue, 'max:' .. queue
  end
  local settings = call('HMGET', p .. 'settings', unpack(names))
  for nr, queue in ipairs(queues) do
    if #claimed >= limit then break end
    claim(queue, most_of(queue, settings[2 * nr - 1], settings[2 * nr]))
  end
  many('SADD', p .. 'running:' .. runner, claimed)
  read_bodies()
end
finish()
return told
