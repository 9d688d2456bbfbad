-- Reads the jobs that are to be enqueued, and refuses them all where a key of one is of another type.
-- ARGV: now, how many, then of each: its id; an entry, or nothing and then queue, place, tool, attempts_max, due
-- (empty: at once), unique, key, key_limit, key_rate, tags, body.
local now, new = take(), {}
local damaged = refused('all', 'counts', 'holding', 'inboxes', 'scheduled', 'settings', 'unique')
if damaged then return damaged end

local function take_job()
  local job = { id = take(), entry = take() }
  if job.entry ~= '' then
    job.queue = parts_of(job.entry)
    return job
  end
  job.queue, job.place, job.tool, job.most, job.due = take(), take(), take(), take(), take()
  job.unique, job.key, job.limit, job.rate = take_optional(), take_optional(), take_optional(), take_optional()
  job.tags, job.body = take_optional(), take()
  return job
end

for nr = 1, tonumber(take()) do
  local job = take_job()
  if not is_open(job.queue) or (job.key and not is_sound(p .. 'key:' .. job.key, 'zset')) then
    return redis.error_reply('DAMAGED ' .. damage[1])
  end
  new[nr] = job
end

