-- What all scripts share; each is appended to this one. KEYS[1] is the namespace with its colon, and 'clutch'. Keys of
-- Sidekiq begin with the namespace, those that only Clutch reads with KEYS[1].
local n = string.sub(KEYS[1], 1, -7)
local p = KEYS[1] .. ':'
local ARGV = ARGV

local KINDS = { cancelling = 'set', leader = 'hash', orphaned = 'set', queues = 'set', renewals = 'hash' }
local KINDS_OF_FORMAT = {
  dead = 'zset', heartbeats = 'zset', paused = 'set', processes = 'set', queues = 'set', retry = 'zset',
  schedule = 'zset',
}

-- What a script returns at once if one of its keys is of another type; those of the format, or our own.
local function refused(...) return refusal(p, KINDS, { ... }) end
local function format_refused(...) return refusal(n, KINDS_OF_FORMAT, { ... }) end

local function is_open(queue) return is_sound(n .. 'queue:' .. queue, 'list') end

local at = 0
local function take()
  at = at + 1
  return ARGV[at]
end

local function push_job(queue, payload)
  call('SADD', n .. 'queues', queue)
  call('LPUSH', n .. 'queue:' .. queue, payload)
end

-- Where it is fetched from next.
local function put_back(queue, payload)
  call('SADD', n .. 'queues', queue)
  call('RPUSH', n .. 'queue:' .. queue, payload)
end

-- Named as Exq does, so that its monitors can rescue too.
local function backup_of(runner, queue)
  return n .. 'queue:backup::' .. runner .. '::' .. queue
end

-- As Sidekiq keeps it: six months, ten thousand jobs.
local DEAD_SECONDS, DEAD_JOBS = 180 * 24 * 3600, 10000

local function bury(payload, now)
  call('ZADD', n .. 'dead', now, payload)
  call('ZREMRANGEBYSCORE', n .. 'dead', '-inf', now - DEAD_SECONDS)
  call('ZREMRANGEBYRANK', n .. 'dead', 0, -DEAD_JOBS - 1)
end

-- Whether it can be put there; the sets and sorted sets were asked for before.
local function is_possible(where, queue) return (where ~= 'queue' and where ~= 'front') or is_open(queue) end

-- 'queue', 'front', 'dead', 'schedule', 'retry', or 'nowhere'; the score is in seconds.
local function put(where, queue, score, payload)
  if where == 'queue' then
    push_job(queue, payload)
  elseif where == 'front' then
    put_back(queue, payload)
  elseif where == 'dead' then
    bury(payload, score)
  elseif where ~= 'nowhere' then
    call('ZADD', n .. where, score, payload)
  end
end

