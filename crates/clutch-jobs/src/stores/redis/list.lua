-- Ids of jobs, the newest first, from before `before`; with a state those that are in it. At most so many are looked at;
-- returns the ids that match, and up to which all were looked at.
local ids, last = {}, asked.before
local found = redis.call('ZREVRANGEBYSCORE', P .. 'all', '(' .. asked.before, '-inf', 'LIMIT', 0, asked.looks_max)
for _, id in ipairs(found) do
  last = id
  local job = redis.call('HMGET', P .. 'job:' .. id, 's', 'q')
  if (not asked.state or job[1] == asked.state) and (not asked.queue or job[2] == asked.queue) then
    ids[#ids + 1] = id
    if #ids >= asked.limit then break end
  end
end
return {ids, #found > 0 and last or false}
