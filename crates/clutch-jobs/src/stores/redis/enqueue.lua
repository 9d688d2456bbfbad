-- Enqueues jobs; returns of each its id and whether it is new.
local told = {}
for at, job in ipairs(asked.jobs) do
  local other = job.unique and redis.call('GET', P .. 'unique:' .. job.unique)
  if other then
    told[at] = {other, 0}
  else
    local id = int(redis.call('INCR', P .. 'id'))
    local state = job.due > now and SCHEDULED or AVAILABLE
    local fields = {
      's', state, 'q', job.queue, 'r', job.rank, 'd', job.text, 'a', 0, 'm', job.attempts_max, 't', int(job.due), 'c', int(now)
    }
    if job.key then fields[#fields + 1] = 'y'; fields[#fields + 1] = job.key end
    if job.unique then
      fields[#fields + 1] = 'z'; fields[#fields + 1] = job.unique
      redis.call('SET', P .. 'unique:' .. job.unique, id)
    end
    redis.call('HSET', P .. 'job:' .. id, unpack(fields))
    redis.call('ZADD', P .. 'all', id, id)
    redis.call('SADD', P .. 'queues', job.queue)
    count(job.queue, state, 1)
    if state == SCHEDULED then
      redis.call('ZADD', P .. 'scheduled', int(job.due), id)
    else
      make_ready(id, job.queue, job.rank, job.key)
    end
    told[at] = {id, 1}
  end
end
finish()
return told
