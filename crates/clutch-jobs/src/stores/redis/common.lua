-- What all scripts share; each is appended to this one. KEYS[1] is the store's prefix in braces: all its keys are on one
-- node of a cluster. The time is always an argument. Numbers of states are those of job.rs.
local p = KEYS[1] .. ':'
local call = redis.call
local SCHEDULED, AVAILABLE, RUNNING, COMPLETED, CANCELLED = '0', '1', '2', '3', '4'

local ARGV, unpack = ARGV, unpack -- locals are found faster

local at = 0
local function take()
  at = at + 1
  return ARGV[at]
end

-- An optional text: empty is none, otherwise '=' comes before it.
local function take_optional()
  local text = take()
  if text ~= '' then return string.sub(text, 2) end
end

-- unpack() pushes its values on Lua's stack, which is finite. Even, so that pairs stay together.
local CHUNK = 4000

local function many(command, key, values)
  for from = 1, #values, CHUNK do
    call(command, key, unpack(values, from, math.min(from + CHUNK - 1, #values)))
  end
end

local function push(lists, name, value, other)
  local list = lists[name]
  if not list then
    list = {}
    lists[name] = list
  end
  list[#list + 1] = value
  if other then list[#list + 1] = other end
end

-- ---- counts by state and queue, written once at the end

local counts = {}

local function count(state, queue, by)
  local field = state .. ':' .. queue
  counts[field] = (counts[field] or 0) + by
end

local function running_of(queue)
  local field = RUNNING .. ':' .. queue
  return tonumber(call('HGET', p .. 'counts', field) or 0) + (counts[field] or 0)
end

-- ---- jobs that can be claimed, added once before a claim and at the end

local offered = {}
-- Queues that had nothing to claim before: there is news of them.
local fresh = {}
local has_news = false

local function offer(id, queue, place)
  push(offered, queue, place, id)
end

local function flush_offered()
  for queue, list in pairs(offered) do
    local key = p .. 'ready:' .. queue
    if not fresh[queue] and call('EXISTS', key) == 0 then fresh[queue] = true end
    many('ZADD', key, list)
  end
  offered = {}
end

-- ---- keys: of those that wait or run, the one with the score -inf may run

-- Available from now on, or held until others with its key have ended.
local function make_available(id, queue, place, key)
  if key then
    local members = p .. 'key:' .. key
    if call('EXISTS', members) == 1 then
      call('ZADD', members, place, id)
      return
    end
    call('ZADD', members, '-inf', id)
  end
  offer(id, queue, place)
end

-- The job neither waits nor runs any more: the next with its key may begin, if it was the one.
local function leave_key(id, key)
  local members = p .. 'key:' .. key
  call('ZREM', members, id)
  local first = call('ZRANGE', members, 0, 0, 'WITHSCORES')
  if first[1] and first[2] ~= '-inf' then
    call('ZADD', members, '-inf', first[1])
    local job = call('HMGET', p .. 'job:' .. first[1], 'queue', 'place')
    offer(first[1], job[1], job[2])
  end
end

-- ---- the end of a script

-- A queue at its limit gives nothing: once it is below, whoever found nothing is to ask again.
local function check_limit(queue, before, after)
  local most = tonumber(call('HGET', p .. 'settings', 'max:' .. queue) or nil)
  if most and before >= most and after < most and call('EXISTS', p .. 'ready:' .. queue) == 1 then has_news = true end
end

local function finish()
  flush_offered()
  for field, by in pairs(counts) do
    if by ~= 0 then
      local after = call('HINCRBY', p .. 'counts', field, by)
      if after == 0 then call('HDEL', p .. 'counts', field) end
      if by < 0 and string.sub(field, 1, 2) == RUNNING .. ':' then check_limit(string.sub(field, 3), after - by, after) end
    end
  end
  for queue in pairs(fresh) do
    if call('EXISTS', p .. 'ready:' .. queue) == 1 then has_news = true end
  end
  if has_news then call('XADD', p .. 'news', 'MAXLEN', 1, '*', 'n', 1) end
end

