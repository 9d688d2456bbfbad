-- ARGV: runner, the number of the round, the length of its lease, now, how many it
-- wants; how many queues, and each; how many notes, and of each: id, attempt, checkpoint, progress; how many have
-- simply completed, and the ids; how many have ended otherwise, and the ids; when these are deleted, by state: completed,
-- cancelled, dead; of each of the first its attempt; of each
-- of the others: attempt, state, attempts, due, error, result, until when it is kept, reason, '0' if it had not begun.
-- What is empty is none.
-- Returns the ids that could not be settled; whether it has a lease, without which it claims nothing; in how many
-- milliseconds a limit of rate gives more, if one has given less; of each claimed job a list: its entry, or id, body,
-- attempt, attempts_max, checkpoint, when it was due, '1' if its deadline plays no part any more, how many jobs it comes
-- after, and their results, each after its number; what is left alone since its key is damaged.
local runner, number, length, now, limit = take(), take(), take(), take(), tonumber(take())
local queues = {}
for nr = 1, tonumber(take()) do queues[nr] = take() end
local running = p .. 'running:' .. runner

local damaged = refused(unpack(ENDING_KINDS)) or refusal(p, { ['running:' .. runner] = 'hash' }, { 'running:' .. runner })
if damaged then return damaged end

-- A plain job that this runner runs gets a record.
local function record(id, claim)
  local kept = write_claimed(id, claim, RUNNING)
  if kept then call('HSET', running, id, kept) end
end

local function note(id, attempt, checkpoint, progress)
  local claim = call('HGET', running, id)
  if not claim then return end
  record(id, claim)
  local job = p .. 'job:' .. id
  if fields_of(id, 'attempt')[1] ~= attempt then return end
  if checkpoint ~= '' then call('HSET', job, 'checkpoint', checkpoint) end
  if progress ~= '' then call('HSET', job, 'progress', progress) end
end

for _ = 1, tonumber(take()) do note(take(), take(), take(), take()) end

-- ---- settle

local lost, done, done_ids, unheld = {}, {}, {}, {}
local are_cancelling

-- When what has ended is deleted: by who settles it, and not before its result expires.
local delete_times = {}

local function delete_at(state, keep_until)
  local time = delete_times[state]
  if time == '' then return end
  return digits(math.max(tonumber(time), tonumber(keep_until) or 0))
end

-- Whether the job was still this runner's.
local function settle(id, attempt, state, attempts, due, problem, result, keep_until, reason)
  local job = p .. 'job:' .. id
  local was = fields_of(id, 'state', 'attempt', 'queue', 'place', 'key', 'unique', 'reason', 'checkpoint', 'rescues')
  local queue, key = was[3], was[5]
  if was[1] ~= RUNNING or was[2] ~= attempt or not queue or not number_of(was[4]) then return false end
  if state == AVAILABLE and not is_open(queue) then state, due = SCHEDULED, digits(now + DAMAGED_PAUSE) end
  if are_cancelling and is_cancelling(id) then
    push(removed, p .. 'cancelling', id)
    -- Somebody was told that it is cancelled: it does not run again.
    if state == SCHEDULED or state == AVAILABLE then state, reason = CANCELLED, 'cancelled' end
  end
  count(RUNNING, queue, -1)
  local fields = { 'state', state, 'attempt', attempts }
  local function with(field, value)
    fields[#fields + 1] = field
    fields[#fields + 1] = value
  end
  if reason then with('reason', reason) elseif was[7] then call('HDEL', job, 'reason') end
  if was[9] then call('HDEL', job, 'rescues') end
  if problem ~= '' then add_error(id, problem) end
  if state == SCHEDULED then
    with('due', due)
    push(added, p .. 'scheduled', due, id)
    count(state, queue, 1)
    if key then leave_key(id, key) end
  elseif state == AVAILABLE then
    count(state, queue, 1)
    offer(id, queue, was[4]) -- it is still one of those of its key that may run
  else
    with('finished', now)
    if result ~= '' then
      with('result', result)
      with('until', keep_until)
    end
    if state == COMPLETED and was[8] then call('HDEL', job, 'checkpoint') end
    finished(id, state, queue, key, was[6], now, delete_at(state, keep_until))
  end
  call('HSET', job, unpack(fields))
  return true
end

-- A plain job that has simply completed needs no record.
local function complete(id, claim, queue)
  local last = #done
  -- In place of the round: when it finished.
  done[last + 1], done[last + 2] = id, now .. string.sub(claim, string.find(claim, '\n', 1, true), -1)
  done_ids[last + 1], done_ids[last + 2] = 0, id
  local delete = delete_at(COMPLETED)
  push(added, p .. (delete and 'delete:' or 'ended:') .. COMPLETED, delete or now, id)
  count(RUNNING, queue, -1)
  count(COMPLETED, queue, 1)
  if are_cancelling and is_cancelling(id) then push(removed, p .. 'cancelling', id) end
end

-- Whether it has a record, or gets one, and its queue; nothing if it is not this runner's.
local function has_record(id, claim, attempt, is_simple)
  local _, _, _, queue, entry = claim_of(claim or '')
  if not entry or entry > #claim then return entry, queue end
  if attempt ~= '1' then return end
  if is_simple then return false, queue end
  record(id, claim)
  return true, queue
end

-- It was this runner's, and its record is gone.
local function settle_recorded(id, queue, ...)
  if fields_of(id, 'state')[1] then return settle(id, ...) end
  set_aside(id, RUNNING, queue)
  call('HDEL', running, id)
end

-- Of each name what a hash has, or false.
local function values_of(key, names)
  local values = {}
  for from = 1, #names, CHUNK do
    local some = call('HMGET', key, unpack(names, from, math.min(from + CHUNK - 1, #names)))
    for nr = 1, #some do values[from + nr - 1] = some[nr] end
  end
  return values
end

-- Of each id what was claimed.
local function each_claim(ids, look)
  local claims = values_of(running, ids)
  for nr, id in ipairs(ids) do
    local where = look(id, claims[nr]) and unheld or lost
    where[#where + 1] = id
  end
end

-- Starts under limits of rate: of each scope and rate, when what began last began. One for each rate, since what a short
-- one forgets a long one needs.
local function starts_of(scope, rate) return p .. 'rate:' .. rate .. ':' .. scope end

-- `round`: the number of the one that claimed the job.
local function start_of(id, round) return id .. ':' .. round .. ':' .. runner end

-- Of a job that had not begun, when it was claimed.
local function forget_start(id, claim, queue)
  local start, was = start_of(id, (claim_of(claim))), fields_of(id, 'key', 'key_rate')
  local scopes = { ['queue:' .. queue] = try('HGET', p .. 'settings', 'rate:' .. queue) }
  if was[1] then scopes['key:' .. was[1]] = was[2] end
  for scope, rate in pairs(scopes) do
    if type(rate) == 'string' and is_sound(starts_of(scope, rate), 'zset') then
      call('ZREM', starts_of(scope, rate), start)
    end
  end
end

local function take_ids()
  local ids = {}
  for nr = 1, tonumber(take()) do ids[nr] = take() end
  return ids
end

local completed, ended = take_ids(), take_ids()
for _, state in ipairs({ COMPLETED, CANCELLED, DEAD }) do delete_times[state] = take() end
if #completed + #ended > 0 then
  are_cancelling = call('EXISTS', p .. 'cancelling') == 1
  each_claim(completed, function(id, claim)
    local attempt = take()
    local recorded, queue = has_record(id, claim, attempt, true)
    if recorded then return settle_recorded(id, queue, attempt, COMPLETED, attempt, '', '', '', '') end
    if recorded == false then complete(id, claim, queue) end
    return recorded == false
  end)
  each_claim(ended, function(id, claim)
    local attempt, state, attempts, due, problem = take(), take(), take(), take(), take()
    local result, keep_until, reason, has_begun = take(), take(), take_optional(), take() == '1'
    local recorded, queue = has_record(id, claim, attempt)
    if not recorded then return false end
    local is_settled = settle_recorded(id, queue, attempt, state, attempts, due, problem, result, keep_until, reason)
    if is_settled and not has_begun then forget_start(id, claim, queue) end
    return is_settled
  end)
  many('HDEL', running, unheld)
  many('HSET', p .. 'done', done)
  many('ZADD', p .. 'all', done_ids)
  flush_endings()
  for nr = 1, #done, 2 do note_links(done[nr], MET) end
  pass_on(LINKS_MAX, now)
end

-- ---- limits of rate

local again -- in how many milliseconds more may begin
local LATE_MAX = 10000 -- milliseconds, as in store.rs

-- How many may begin now.
local function rate_left(scope, rate)
  local most, per = string.match(rate, '^(%d+)/(%d+)$')
  if not most then return limit end
  most, per = tonumber(most), tonumber(per)
  local starts = starts_of(scope, rate)
  if not is_sound(starts, 'zset') then return 0, DAMAGED_PAUSE end
  -- What is later than now was before the clock was set back; unless others have begun while this was on its way.
  call('ZREMRANGEBYSCORE', starts, '(' .. digits(now + LATE_MAX), '+inf')
  local time = tonumber(call('ZRANGE', starts, -1, -1, 'WITHSCORES')[2] or 0)
  time = math.max(time, tonumber(now))
  call('ZREMRANGEBYSCORE', starts, '-inf', digits(time - per))
  local begun = call('ZCARD', starts)
  if begun < most then return most - begun end
  local first = call('ZRANGE', starts, begun - most, begun - most, 'WITHSCORES')
  return 0, tonumber(first[2]) + per - time
end

local function note_start(scope, rate, id)
  local starts = starts_of(scope, rate)
  call('ZADD', starts, now, start_of(id, number))
  call('PEXPIRE', starts, string.match(rate, '%d+$') + LATE_MAX)
end

-- ---- claim

local claimed, told, claims = 0, {}, {}
local BYTES_MAX = 8 * 1024 * 1024 -- of the arguments in one answer, and one job
local bytes = 0
local TRIES_MAX = 1000 -- of jobs that cannot begin, in one round

local function note_claim(id, claim, what)
  claims[#claims + 1] = id
  claims[#claims + 1] = claim
  told[#told + 1] = what
  claimed = claimed + 1
end

-- What is claimed is in the runner's hash before it is taken from where it waits.
local function keep_claims(first) many('HSET', running, claims, 2 * first + 1) end

local function claim_entries(queue, most)
  local inbox, first = p .. 'inbox:' .. queue, claimed
  local entries = most > 0 and call('LRANGE', inbox, -most, -1) or {}
  local head = head_of_claim(number, now, runner, queue)
  for nr = #entries, 1, -1 do
    if parts_of(entries[nr]) then
      note_claim(id_of(entries[nr]), head .. entries[nr], { entries[nr] })
    else
      set_aside(id_of(entries[nr]))
      again = 0
    end
  end
  keep_claims(first)
  if #entries > 0 then call('LTRIM', inbox, 0, -#entries - 1) end
  count(RUNNING, queue, claimed - first)
  if call('EXISTS', inbox) == 0 then call('SREM', p .. 'inboxes', queue) end
end

-- It is still one of those of its key that may run, and nobody else's turn, but not yet.
local function put_off(id, queue, wait)
  local due = digits(now + wait)
  call('HSET', p .. 'job:' .. id, 'state', SCHEDULED, 'due', due, 'reason', 'rate')
  call('ZADD', p .. 'scheduled', due, id)
  count(SCHEDULED, queue, 1)
end

-- One of those that are ready; true if it is to be begun.
local function claim_recorded(id, queue)
  local was = fields_of(id, 'attempt', 'max', 'checkpoint', 'key', 'key_rate', 'due', 'undated', 'follows')
  count(AVAILABLE, queue, -1)
  if not was[2] then return set_aside(id) end
  if was[4] and was[5] then
    local scope = 'key:' .. was[4]
    local left, wait = rate_left(scope, was[5])
    if left <= 0 then return put_off(id, queue, wait) end
    note_start(scope, was[5], id)
  end
  local attempt = (tonumber(was[1]) or 0) + 1
  local body = try('GET', p .. 'body:' .. id)
  if type(body) == 'table' then body = false end
  bytes = bytes + #(body or '')
  local what = { id, body, attempt, was[2], was[3], was[6], was[7], was[8] }
  local results = p .. 'results:' .. id
  if was[8] then
    what[9] = is_sound(results, 'hash') and call('HGETALL', results) or {}
    for nr = 2, #what[9], 2 do bytes = bytes + #what[9][nr] end
  end
  note_claim(id, head_of_claim(number, now, runner, queue), what)
  count(RUNNING, queue, 1)
  return attempt
end

-- Those that are ready, up to this place.
local function claim_ready(queue, upto, last)
  local ready = p .. 'ready:' .. queue
  for _ = 1, TRIES_MAX do
    if claimed >= last then return end
    local ids = call('ZRANGEBYSCORE', ready, '-inf', upto, 'LIMIT', 0, last - claimed)
    if #ids == 0 then return end
    local taken, attempts, first = {}, {}, claimed
    for nr = 1, #ids do
      if bytes > BYTES_MAX then break end
      taken[nr] = ids[nr]
      attempts[ids[nr]] = claim_recorded(ids[nr], queue) or nil
    end
    keep_claims(first)
    for id, attempt in pairs(attempts) do
      call('HSET', p .. 'job:' .. id, 'state', RUNNING, 'attempt', attempt, 'runner', runner, 'at', now)
    end
    many('ZREM', ready, taken)
    if bytes > BYTES_MAX then break end
  end
  again = 0
end

-- How many plain jobs, of those that are next, are older than this place.
local function older_than(inbox, place, most)
  local entries = call('LRANGE', inbox, -most, -1)
  local older = 0
  for nr = #entries, 1, -1 do
    if (tonumber(created_of(entries[nr])) or 0) >= place then break end
    older = older + 1
  end
  return math.max(older, 1)
end

-- By priority, then by age: plain jobs have the priority 0.
local function claim(queue, most)
  local last, inbox = claimed + most, p .. 'inbox:' .. queue
  while claimed < last do
    local ready = call('ZRANGE', p .. 'ready:' .. queue, 0, 0, 'WITHSCORES')[2]
    if not ready then return claim_entries(queue, last - claimed) end
    local first = call('LINDEX', inbox, -1)
    if not first then return claim_ready(queue, '+inf', last) end
    claim_ready(queue, created_of(first) or '+inf', last)
    if claimed >= last or bytes > BYTES_MAX or again == 0 then return end
    ready = call('ZRANGE', p .. 'ready:' .. queue, 0, 0, 'WITHSCORES')[2]
    if ready then claim_entries(queue, older_than(inbox, tonumber(ready), last - claimed)) end
  end
end

local function claim_by_rate(queue, most, rate)
  local scope, first = 'queue:' .. queue, claimed
  local left, wait = rate_left(scope, rate)
  claim(queue, math.min(most, left))
  for nr = first + 1, claimed do note_start(scope, rate, claims[2 * nr - 1]) end
  if left > 0 then left, wait = rate_left(scope, rate) end
  if left == 0 then again = math.min(again or wait, wait) end
end

-- Most jobs that the queue gives.
local function most_of(queue, is_paused, most)
  local left = limit - claimed
  if is_paused == '1' then return 0 end
  if most then return math.min(left, (tonumber(most) or left) - running_of(queue)) end
  return left
end

local is_leased = limit == 0 or has_lease(runner, number, length)
if limit > 0 and is_leased and #queues > 0 then
  flush_offered()
  local names = {}
  for _, queue in ipairs(queues) do
    names[#names + 1], names[#names + 2], names[#names + 3] = 'paused:' .. queue, 'max:' .. queue, 'rate:' .. queue
  end
  local settings = values_of(p .. 'settings', names)
  for nr, queue in ipairs(queues) do
    if claimed >= limit or bytes > BYTES_MAX then break end
    local most, rate = most_of(queue, settings[3 * nr - 2], settings[3 * nr - 1]), settings[3 * nr]
    if not is_open(queue) then most = 0 end
    if most > 0 and rate then claim_by_rate(queue, most, rate) elseif most > 0 then claim(queue, most) end
  end
end
finish()
return { lost, is_leased and 1 or 0, again and digits(math.max(0, again)) or false, told, damage }
