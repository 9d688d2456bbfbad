-- Rescues, stages and prunes at most so many each. Returns how many, and when the next job is due.
local rescued, buried, staged, pruned = 0, 0, 0, 0

local function rescue(id, runner)
  local key = P .. 'job:' .. id
  local job = redis.call('HMGET', key, 'a', 'x', 'n', 'q', 'y', 'z')
  local said = 'runner ' .. runner .. ' has not renewed its lease: it died, or was cut off from the store'
  add_error(id, '{"at":' .. int(now) .. ',"attempt":' .. job[1] .. ',"kind":"lease_lapsed","message":' .. cjson.encode(said)
    .. ',"traceback":""}')
  local rescues = tonumber(job[3] or 0)
  redis.call('HSET', key, 'n', rescues + 1)
  rescued = rescued + 1
  if job[2] == '1' or rescues >= asked.rescues_max then
    redis.call('HINCRBY', key, 'a', -1)
    redis.call('HDEL', key, 'x')
    redis.call('SREM', P .. 'running:' .. runner, id)
    if job[2] ~= '1' then buried = buried + 1 end
    end_job(id, job[4], RUNNING, job[2] == '1' and CANCELLED or DEAD, job[5], job[6])
  else
    put_back(id, runner)
  end
end

for _, runner in ipairs(redis.call('ZRANGEBYSCORE', P .. 'runners', '-inf', '(' .. int(now), 'LIMIT', 0, asked.limit)) do
  local left = redis.call('SRANDMEMBER', P .. 'running:' .. runner, asked.limit - rescued)
  for _, id in ipairs(left) do rescue(id, runner) end
  if redis.call('EXISTS', P .. 'running:' .. runner) == 0 then
    redis.call('ZREM', P .. 'runners', runner)
    redis.call('DEL', P .. 'cancelling:' .. runner)
  end
  if rescued >= asked.limit then break end
end

for _, id in ipairs(redis.call('ZRANGEBYSCORE', P .. 'scheduled', '-inf', int(now), 'LIMIT', 0, asked.limit)) do
  local job = redis.call('HMGET', P .. 'job:' .. id, 'q', 'r', 'y')
  redis.call('ZREM', P .. 'scheduled', id)
  move(id, job[1], SCHEDULED, AVAILABLE)
  make_ready(id, job[1], tonumber(job[2]), job[3])
  staged = staged + 1
end

for state, kept in pairs(asked.keep) do
  local old = redis.call('ZRANGEBYSCORE', P .. 'ended:' .. state, '-inf', '(' .. int(now - kept), 'LIMIT', 0, asked.limit)
  for _, id in ipairs(old) do
    local job = redis.call('HMGET', P .. 'job:' .. id, 'q', 'u')
    if job[2] and tonumber(job[2]) >= now then
      -- Somebody may still ask for its result.
      redis.call('ZADD', P .. 'ended:' .. state, job[2], id)
    else
      redis.call('DEL', P .. 'job:' .. id, P .. 'errors:' .. id)
      redis.call('ZREM', P .. 'ended:' .. state, id)
      redis.call('ZREM', P .. 'all', id)
      count(job[1], state, -1)
      pruned = pruned + 1
    end
  end
end
finish()
local next = redis.call('ZRANGE', P .. 'scheduled', 0, 0, 'WITHSCORES')
return {staged, rescued, buried, pruned, next[2] or false}
