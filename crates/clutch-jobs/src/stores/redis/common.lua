-- What all scripts share; each is appended to this one. KEYS[1] is the store's prefix in braces: all its keys are on
-- one node of a cluster. The time of jobs is always an argument. Numbers of states are those of job.rs.
local p = KEYS[1] .. ':'

local KINDS = {
  all = 'zset', arrivals = 'zset', broken = 'set', cancelling = 'set', counts = 'hash', cron = 'hash',
  ['delete:3'] = 'zset', ['delete:4'] = 'zset', ['delete:5'] = 'zset', done = 'hash', ['ended:3'] = 'zset',
  ['ended:4'] = 'zset', ['ended:5'] = 'zset', holding = 'set', inboxes = 'set', leader = 'hash', orphaned = 'set',
  parents = 'set', passing = 'zset', renewals = 'hash', scheduled = 'zset', schedules = 'hash',
  ['schedules:paused'] = 'set', schema = 'string', settings = 'hash', unique = 'hash',
}

-- What a script returns at once if one of its keys is of another type.
local function refused(...) return refusal(p, KINDS, { ... }) end

local problem = refused('schema')
if problem then return problem end

-- A newer version may have changed the format while this program had a connection.
local SCHEMA = 2
local schema = tonumber(call('GET', p .. 'schema') or SCHEMA)
if schema and schema > SCHEMA then
  return redis.error_reply('NEWERSCHEMA its keys are of version ' .. schema .. ': install a newer Clutch')
end

local WAITING = '-1'
local SCHEDULED, AVAILABLE, RUNNING, COMPLETED, CANCELLED, DEAD = '0', '1', '2', '3', '4', '5'
local ACTIVE = '-inf' -- the score of those of a key that may run

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

local function many(command, key, values, first)
  for from = first or 1, #values, CHUNK do
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

-- ---- counts by state and queue, written once at the end; available plain jobs are not among them

local counts = {}

local function count(state, queue, by)
  local field = state .. ':' .. queue
  counts[field] = (counts[field] or 0) + by
end

-- A job whose record somebody has damaged: set aside, so that the others go on. It is counted no more in its state,
-- where its queue is known.
local function set_aside(id, state, queue)
  call('SADD', p .. 'broken', id)
  if queue then count(state, queue, -1) end
end

-- Fields of a record; none where there is none, or something else.
local function fields_of(id, ...)
  local found = try('HMGET', p .. 'job:' .. id, ...)
  return found.err and {} or found
end

-- A place or a time as it is written; nothing if it is no number.
local function number_of(text)
  local number = tonumber(text or nil)
  return number and number == number and text
end

-- ---- entries: what a plain job is as long as nothing but its run happens to it (record.rs)

local ID_LENGTH = 26

local function id_of(entry) return string.sub(entry, -ID_LENGTH) end

local function created_of(entry) return string.match(entry, '^%d+') end

-- Of the queue, tool, attempts_max, tags, and where its body begins.
local function parts_of(entry) return string.match(entry, '^%d+\n([^\n]*)\n([^\n]*)\n([^\n]*)\n([^\n]*)\n()') end

-- What is kept of each running job: the number of the round that claimed it, when, the runner, its queue; and where its
-- entry begins, which is empty if it has a record.
local function claim_of(claim)
  local number, began, runner, queue, entry = string.match(claim, '^(%d+)\n(%d+)\n([^\n]*)\n([^\n]*)\n()')
  return number, began, runner, queue and (string.gsub(queue, '\1', '\n')), entry
end

local function head_of_claim(number, began, runner, queue)
  return table.concat({ number, began, runner, (string.gsub(queue, '\n', '\1')), '' }, '\n')
end

-- From now on it has a record as others have. Returns its queue, or nothing when it is no entry.
local function write_record(id, entry, state)
  local queue, tool, most, tags, body = parts_of(entry)
  if not queue then return set_aside(id) end
  local created = created_of(entry)
  local job = p .. 'job:' .. id
  if not is_sound(job, 'hash') then return set_aside(id) end
  call('HSET', job, 'state', state, 'queue', queue, 'place', created, 'tool', tool, 'max', most, 'due', created)
  if tags ~= '' then call('HSET', job, 'tags', tags) end
  call('SET', p .. 'body:' .. id, string.sub(entry, body, -ID_LENGTH - 2))
  call('ZADD', p .. 'all', 0, id)
  return queue
end

-- The same of one that was claimed; nothing is done where it has a record.
local function write_claimed(id, claim, state)
  local _, began, runner, _, entry = claim_of(claim)
  if not entry or entry > #claim or not write_record(id, string.sub(claim, entry), state) then return end
  call('HSET', p .. 'job:' .. id, 'attempt', 1, 'at', began, 'runner', runner)
  return string.sub(claim, 1, entry - 1)
end

local function running_of(queue)
  local field = RUNNING .. ':' .. queue
  return (tonumber(call('HGET', p .. 'counts', field) or 0) or 0) + (counts[field] or 0)
end

-- ---- jobs that can be claimed, added once before a claim and at the end

local offered = {}
-- Queues that had nothing to claim before: there is news of them.
local fresh = {}
local has_news = false

-- Whether something can be put there.
local function is_open(queue) return is_sound(p .. 'ready:' .. queue, 'zset') and is_sound(p .. 'inbox:' .. queue, 'list') end

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

-- Plain jobs, at the end of the line ('LPUSH') or before all others ('RPUSH').
local function put_entries(command, queue, entries)
  local inbox = p .. 'inbox:' .. queue
  if call('EXISTS', inbox) == 0 then
    call('SADD', p .. 'inboxes', queue)
    has_news = true
  end
  many(command, inbox, entries)
end

-- ---- keys: of those that wait or run, the ones with the score ACTIVE may run, as many as the limit of each says

local function has_place(members, limit)
  return call('ZCOUNT', members, ACTIVE, ACTIVE) < (tonumber(limit or 1) or 1)
end

-- Available from now on, or held until others with its key have ended.
local function make_available(id, queue, place, key, limit)
  if key then
    local members = p .. 'key:' .. key
    if call('ZSCORE', members, id) ~= ACTIVE then
      if not has_place(members, limit) then
        call('ZADD', members, place, id)
        call('SADD', p .. 'holding', key)
        return
      end
      call('ZADD', members, ACTIVE, id)
    end
  end
  offer(id, queue, place)
end

-- Those that come next with a key begin, as many as have a place.
local function fill_key(key)
  local members = p .. 'key:' .. key
  while true do
    local first = call('ZRANGEBYSCORE', members, '(' .. ACTIVE, '+inf', 'LIMIT', 0, 1)[1]
    if not first then return end
    local job = fields_of(first, 'queue', 'place', 'key_limit')
    if not job[1] or not number_of(job[2]) then
      set_aside(first)
      call('ZREM', members, first)
    elseif has_place(members, job[3]) and is_open(job[1]) then
      call('ZADD', members, ACTIVE, first)
      offer(first, job[1], job[2])
    else
      return
    end
  end
end

-- The job neither waits nor runs any more.
local function leave_key(id, key)
  if not is_sound(p .. 'key:' .. key, 'zset') then return end
  call('ZREM', p .. 'key:' .. key, id)
  fill_key(key)
end

-- ---- the end of a script

-- A queue at its limit gives nothing: once it is below, whoever found nothing is to ask again.
local function check_limit(queue, before, after)
  local most = tonumber(call('HGET', p .. 'settings', 'max:' .. queue) or nil)
  if not most or before < most or after >= most then return end
  if call('EXISTS', p .. 'ready:' .. queue, p .. 'inbox:' .. queue) > 0 then has_news = true end
end

local function add_count(field, by)
  local after = try('HINCRBY', p .. 'counts', field, by)
  if type(after) == 'number' then return after end
  -- It was no number.
  call('HSET', p .. 'counts', field, math.max(by, 0))
  return by
end

-- Last of all: what has been written stays, whatever becomes of this.
local function tell_news()
  local key = p .. 'news'
  if type(try('XADD', key, 'MAXLEN', 1, '*', 'n', 1)) == 'table' and wrong(key, 'stream') then
    try('DEL', key)
    try('XADD', key, 'MAXLEN', 1, '*', 'n', 1)
  end
end

local function finish()
  flush_offered()
  for field, by in pairs(counts) do
    if by ~= 0 then
      local after = add_count(field, by)
      if after == 0 then call('HDEL', p .. 'counts', field) end
      if by < 0 and string.sub(field, 1, 2) == RUNNING .. ':' then check_limit(string.sub(field, 3), after - by, after) end
    end
  end
  for queue in pairs(fresh) do
    if call('EXISTS', p .. 'ready:' .. queue) == 1 then has_news = true end
  end
  if has_news then tell_news() end
end

