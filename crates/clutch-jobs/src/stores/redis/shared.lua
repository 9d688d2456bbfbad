-- What all scripts share. KEYS[1] is the prefix with its hash tag, ARGV[1] what is asked for, as JSON.
-- Rooms: job:ID (hash), ready:QUEUE (sorted set), scheduled, ended:STATE, all, queue:QUEUE (hash), queues, runners,
-- running:RUNNER (set), cancelling:RUNNER, leader (hash), key:KEY, held:KEY, unique:KEY, errors:ID (list), id.
-- Fields of a job: s state, q queue, r rank, d what was enqueued, a attempt, m attempts_max, t due, c created, g attempted,
-- f finished, o runner, x cancelling, n rescues, k checkpoint, p progress, w reason, v result, u until when that is kept,
-- y key, z unique key.
local P = KEYS[1]
local asked = cjson.decode(ARGV[1])
local now = asked.now
local SCHEDULED, AVAILABLE, RUNNING, COMPLETED, CANCELLED, DEAD = '0', '1', '2', '3', '4', '5'
-- Ids stay below this, so that a score is exact: priority first, then age.
local RANK = 35184372088832

local function int(number)
  return string.format('%.0f', number)
end

-- By queue and state; written once, by finish().
local counted = {}

local function count(queue, state, by)
  local states = counted[queue]
  if not states then
    states = {}
    counted[queue] = states
  end
  states[state] = (states[state] or 0) + by
end

local function move(id, queue, from, to)
  redis.call('HSET', P .. 'job:' .. id, 's', to)
  count(queue, from, -1)
  count(queue, to, 1)
end

local news = false

-- It waits for a slot, or for the job with its key that is before it.
local function make_ready(id, queue, rank, key)
  if key then
    local first = redis.call('GET', P .. 'key:' .. key)
    if first and first ~= id then
      redis.call('ZADD', P .. 'held:' .. key, rank * RANK + tonumber(id), id)
      return
    end
    redis.call('SET', P .. 'key:' .. key, id)
  end
  redis.call('ZADD', P .. 'ready:' .. queue, rank * RANK + tonumber(id), id)
  news = true
end

-- The next job with its key may begin.
local function release(id, key)
  if not key then return end
  redis.call('ZREM', P .. 'held:' .. key, id)
  if redis.call('GET', P .. 'key:' .. key) ~= id then return end
  local next = redis.call('ZPOPMIN', P .. 'held:' .. key)
  if not next[1] then
    redis.call('DEL', P .. 'key:' .. key)
    return
  end
  redis.call('SET', P .. 'key:' .. key, next[1])
  local queue = redis.call('HGET', P .. 'job:' .. next[1], 'q')
  redis.call('ZADD', P .. 'ready:' .. queue, next[2], next[1])
  news = true
end

local function end_job(id, queue, from, to, key, unique)
  redis.call('HSET', P .. 'job:' .. id, 's', to, 'f', int(now))
  count(queue, from, -1)
  count(queue, to, 1)
  redis.call('ZADD', P .. 'ended:' .. to, now, id)
  if unique and redis.call('GET', P .. 'unique:' .. unique) == id then
    redis.call('DEL', P .. 'unique:' .. unique)
  end
  release(id, key)
end

local function add_error(id, text)
  redis.call('RPUSH', P .. 'errors:' .. id, text)
  redis.call('LTRIM', P .. 'errors:' .. id, -asked.errors_max, -1)
end

-- From running to available, as if it had not been claimed.
local function put_back(id, runner)
  local job = redis.call('HMGET', P .. 'job:' .. id, 'q', 'r', 'y')
  redis.call('HINCRBY', P .. 'job:' .. id, 'a', -1)
  redis.call('SREM', P .. 'running:' .. runner, id)
  move(id, job[1], RUNNING, AVAILABLE)
  make_ready(id, job[1], tonumber(job[2]), job[3])
end

local function finish()
  for queue, states in pairs(counted) do
    for state, by in pairs(states) do
      if by ~= 0 then redis.call('HINCRBY', P .. 'queue:' .. queue, state, by) end
    end
  end
  if news then redis.call('PUBLISH', P .. 'news', '') end
end
