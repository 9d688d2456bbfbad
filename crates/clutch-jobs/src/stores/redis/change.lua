-- Cancels, retries or deletes a job. Returns whether there was something to change.
local id = asked.id
local key = P .. 'job:' .. id
local job = redis.call('HMGET', key, 's', 'q', 'r', 'y', 'z', 'o', 'a', 'm')
local state = job[1]
if not state then return 0 end

-- Out of where it waits.
local function take_out()
  if state == SCHEDULED then redis.call('ZREM', P .. 'scheduled', id) end
  if state == AVAILABLE then redis.call('ZREM', P .. 'ready:' .. job[2], id) end
  if state == COMPLETED or state == CANCELLED or state == DEAD then redis.call('ZREM', P .. 'ended:' .. state, id) end
end

if asked.what == 'cancel' then
  if state == RUNNING then
    redis.call('HSET', key, 'x', '1')
    redis.call('SADD', P .. 'cancelling:' .. job[6], id)
  elseif state == SCHEDULED or state == AVAILABLE then
    take_out()
    redis.call('HSET', key, 'w', 'cancelled')
    end_job(id, job[2], state, CANCELLED, job[4], job[5])
  else
    return 0
  end
elseif asked.what == 'retry' then
  if state == AVAILABLE or state == RUNNING then return 0 end
  if job[5] then
    local other = redis.call('GET', P .. 'unique:' .. job[5])
    if other and other ~= id then return 0 end
    redis.call('SET', P .. 'unique:' .. job[5], id)
  end
  take_out()
  redis.call('HDEL', key, 'f', 'w', 'v', 'u', 'x', 'n')
  redis.call('HSET', key, 't', int(now), 'm', math.max(tonumber(job[8]), tonumber(job[7]) + 1))
  move(id, job[2], state, AVAILABLE)
  make_ready(id, job[2], tonumber(job[3]), job[4])
else
  if state == RUNNING then return 0 end
  take_out()
  if job[5] and redis.call('GET', P .. 'unique:' .. job[5]) == id then redis.call('DEL', P .. 'unique:' .. job[5]) end
  release(id, job[4])
  redis.call('DEL', key, P .. 'errors:' .. id)
  redis.call('ZREM', P .. 'all', id)
  count(job[2], state, -1)
end
finish()
return 1
