-- ARGV: the id below which to look ('+inf': at the newest), how many to look at, how many to find; then state, queue, tool
-- and tag as JSON, each optional. A tag may be found in another: the caller looks again.
-- Returns the last id looked at (false: it was the oldest), then of each found: id, fields, body, errors.
local below, look, limit = take(), take(), tonumber(take())
local state, queue, tool, tag = take_optional(), take_optional(), take_optional(), take_optional()

local function matches(job)
  return (not state or job[1] == state)
    and (not queue or job[2] == queue)
    and (not tool or job[3] == tool)
    and (not tag or (job[4] and string.find(job[4], tag, 1, true)))
end

-- ---- where to look

local INDEX_MAX = 2000 -- of an index that is read as a whole

-- Where the jobs of some states are, by names of keys; none where they are too many, or where only looking at all jobs helps.
local function indexes()
  local runners = {}
  if state == SCHEDULED then return { 'scheduled' } end
  if state and state >= CANCELLED then return { 'ended:' .. state } end
  if state ~= RUNNING then return end
  for _, runner in ipairs(call('ZRANGE', p .. 'runners', 0, -1)) do runners[#runners + 1] = 'running:' .. runner end
  for _, runner in ipairs(call('SMEMBERS', p .. 'orphaned')) do runners[#runners + 1] = 'running:' .. runner end
  return runners
end

local function ids_of(keys)
  local most = below == '+inf' and math.huge or tonumber(string.sub(below, 2))
  local total, found = 0, {}
  for _, key in ipairs(keys) do
    local is_set = state == RUNNING
    total = total + call(is_set and 'SCARD' or 'ZCARD', p .. key)
    if total > INDEX_MAX then return end
    for _, id in ipairs(is_set and call('SMEMBERS', p .. key) or call('ZRANGE', p .. key, 0, -1)) do
      if tonumber(id) < most then found[#found + 1] = tonumber(id) end
    end
  end
  table.sort(found, function(one, other) return one > other end)
  for nr = 1, #found do found[nr] = string.format('%.0f', found[nr]) end
  return found
end

local keys = indexes()
local ids = keys and ids_of(keys)
local is_whole = ids ~= nil
ids = ids or call('ZREVRANGEBYSCORE', p .. 'all', below, '-inf', 'LIMIT', 0, look)
local told = { not is_whole and #ids == tonumber(look) and ids[#ids] }
for _, id in ipairs(ids) do
  local job = p .. 'job:' .. id
  if matches(call('HMGET', job, 'state', 'queue', 'tool', 'tags')) then
    local last = #told
    told[last + 1], told[last + 2] = id, call('HGETALL', job)
    told[last + 3], told[last + 4] = call('GET', p .. 'body:' .. id), call('LRANGE', p .. 'errors:' .. id, 0, -1)
    limit = limit - 1
    if limit == 0 then
      told[1] = id
      break
    end
  end
end
return told
