-- ARGV: the id below which to look ('': at the newest), how many to look at, how many to find; then state, queue, tool
-- and tag as JSON, each optional. A tag may be found in another: the caller looks again. Plain jobs that wait or run
-- are not among these: see waiting.lua and running.lua.
-- Returns the last id looked at (false: it was the oldest), then of each found: id, and as get.lua says.
local below, look, limit = take(), take(), tonumber(take())
local state, queue, tool, tag = take_optional(), take_optional(), take_optional(), take_optional()

local unusable = refused('all', 'scheduled', 'ended:4', 'ended:5', 'delete:4', 'delete:5')
if unusable then return unusable end

local function matches(found)
  return (not state or found[1] == state)
    and (not queue or found[2] == queue)
    and (not tool or found[3] == tool)
    and (not tag or (found[4] and string.find(found[4], tag, 1, true)))
end

-- ---- where to look

local INDEX_MAX = 2000 -- of an index that is read as a whole

-- Where the jobs of some states are, by names of keys; none where they are too many, or where only looking at all jobs
-- helps.
local function indexes()
  local runners = {}
  if state == SCHEDULED then return { 'scheduled' } end
  if state and state >= CANCELLED then return { 'ended:' .. state, 'delete:' .. state } end
  if state ~= RUNNING then return end
  each_runner(function(runner) runners[#runners + 1] = 'running:' .. runner end)
  return runners
end

local function ids_of(keys)
  local total, found = 0, {}
  for _, key in ipairs(keys) do
    local is_hash = state == RUNNING
    total = total + call(is_hash and 'HLEN' or 'ZCARD', p .. key)
    if total > INDEX_MAX then return end
    for _, id in ipairs(is_hash and call('HKEYS', p .. key) or call('ZRANGE', p .. key, 0, -1)) do
      if below == '' or id < below then found[#found + 1] = id end
    end
  end
  table.sort(found, function(one, other) return one > other end)
  return found
end

local function all_ids()
  local from = below == '' and '+' or '(' .. below
  return call('ZREVRANGEBYLEX', p .. 'all', from, '-', 'LIMIT', 0, look)
end

local keys = indexes()
local ids = keys and ids_of(keys)
local is_whole = ids ~= nil
ids = ids or all_ids()
local told = { not is_whole and #ids == tonumber(look) and ids[#ids] }

local BYTES_MAX = 4 * 1024 * 1024 -- of one answer, and one job
local bytes = 0

local function tell(id, first, body, third)
  local last = #told
  told[last + 1], told[last + 2], told[last + 3], told[last + 4] = id, first, body, third
  limit, bytes = limit - 1, bytes + #(body or '')
  if limit == 0 or bytes > BYTES_MAX then
    limit = 0
    told[1] = id
  end
end

for _, id in ipairs(ids) do
  local job = p .. 'job:' .. id
  local found = fields_of(id, 'state', 'queue', 'tool', 'tags')
  if found[1] then
    if matches(found) then
      tell(id, call('HGETALL', job), body_of(id), errors_of(id))
    end
  elseif not state or state == COMPLETED then
    local found_done = find_plain(id)
    local done = found_done[1] == 'done' and found_done[2]
    local _, _, _, _, from = claim_of(done or '')
    if from then
      local of, name, _, tags = parts_of(string.sub(done, from))
      if matches({ COMPLETED, of, name, tags }) then tell(id, unpack(found_done)) end
    end
  end
  if limit == 0 then break end
end
return told
