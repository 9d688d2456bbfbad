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

local ids = call('ZREVRANGEBYSCORE', p .. 'all', below, '-inf', 'LIMIT', 0, look)
local told = { #ids == tonumber(look) and ids[#ids] }
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
