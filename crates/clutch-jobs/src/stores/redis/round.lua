-- Notes, settles, then claims. Returns the claimed jobs, and the ids of those that are not the runner's any more.
local runner = asked.runner
local lost, claimed = {}, {}

local function is_own(id, attempt)
  local job = redis.call('HMGET', P .. 'job:' .. id, 's', 'o', 'a', 'q', 'r', 'y', 'z', 'k')
  return job[1] == RUNNING and job[2] == runner and tonumber(job[3]) == attempt and job
end

for _, noted in ipairs(asked.noted) do
  if is_own(noted.id, noted.attempt) then
    if noted.checkpoint then redis.call('HSET', P .. 'job:' .. noted.id, 'k', noted.checkpoint) end
    if noted.progress then redis.call('HSET', P .. 'job:' .. noted.id, 'p', noted.progress) end
  end
end

local settled = {}
for _, ended in ipairs(asked.settled) do
  local id, to = ended.id, ended.state
  local job = is_own(id, ended.attempt)
  if not job then
    lost[#lost + 1] = id
  else
    local key = P .. 'job:' .. id
    settled[#settled + 1] = id
    if ended.attempts ~= ended.attempt then redis.call('HSET', key, 'a', ended.attempts) end
    if ended.error then add_error(id, ended.error) end
    if ended.reason then redis.call('HSET', key, 'w', ended.reason) end
    if ended.result then redis.call('HSET', key, 'v', ended.result, 'u', int(ended.keep_until)) end
    if to == COMPLETED and job[8] then redis.call('HDEL', key, 'k') end
    if to == SCHEDULED then
      redis.call('HSET', key, 't', int(ended.due))
      redis.call('ZADD', P .. 'scheduled', int(ended.due), id)
      move(id, job[4], RUNNING, SCHEDULED)
      release(id, job[6])
    elseif to == AVAILABLE then
      move(id, job[4], RUNNING, AVAILABLE)
      make_ready(id, job[4], tonumber(job[5]), job[6])
    else
      end_job(id, job[4], RUNNING, to, job[6], job[7])
    end
  end
end

if #settled > 0 then redis.call('SREM', P .. 'running:' .. runner, unpack(settled)) end

if asked.limit > 0 then
  redis.call('ZADD', P .. 'runners', 'NX', int(asked.leased_until), runner)
  for _, queue in ipairs(asked.queues) do
    local limit = asked.limit - #claimed
    if limit <= 0 then break end
    local settings = redis.call('HMGET', P .. 'queue:' .. queue, 'paused', 'most', RUNNING)
    if settings[1] == '1' then limit = 0 end
    if settings[2] then
      local running = tonumber(settings[3] or 0) + (counted[queue] and counted[queue][RUNNING] or 0)
      limit = math.min(limit, tonumber(settings[2]) - running)
    end
    if limit > 0 then
      local found = redis.call('ZPOPMIN', P .. 'ready:' .. queue, limit)
      local taken = {}
      for at = 1, #found, 2 do
        local id = found[at]
        local key = P .. 'job:' .. id
        local job = redis.call('HMGET', key, 'd', 'a', 'm', 'c', 'k')
        local attempt = tonumber(job[2]) + 1
        redis.call('HSET', key, 's', RUNNING, 'a', attempt, 'g', int(now), 'o', runner)
        taken[#taken + 1] = id
        claimed[#claimed + 1] = {id, job[1], attempt, tonumber(job[3]), tonumber(job[4]), job[5]}
      end
      if #taken > 0 then
        redis.call('SADD', P .. 'running:' .. runner, unpack(taken))
        count(queue, AVAILABLE, -#taken)
        count(queue, RUNNING, #taken)
      end
    end
  end
end
finish()
return {claimed, lost}
