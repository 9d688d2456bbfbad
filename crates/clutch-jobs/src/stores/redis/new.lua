-- Reads the jobs that are to be enqueued, and refuses them all where a key of one is of another type, or one comes after
-- what there is not.
-- ARGV: now, which jobs are there no more that some come after, how many, then of each: its id; an entry, or nothing and
-- then queue, place, tool, attempts_max, due (empty: at once), unique, key, key_limit, key_rate, tags, body, the jobs that
-- it comes after, those of its batch that it comes after, and '1' if it runs in any case.
-- Returns 'missing' and the ids of those that there are not, or 'itself' and the id of a job with the unique key of one that
-- comes after it.
local now, new = take(), {}
take_gone()
local damaged =
  refused('all', 'counts', 'ended:4', 'holding', 'inboxes', 'parents', 'passing', 'scheduled', 'settings', 'unique')
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
  job.outside, job.inside, job.runs_anyway = ids_in(take()), ids_in(take()), take() == '1'
  return job
end

for nr = 1, tonumber(take()) do
  local job = take_job()
  local is_usable = is_open(job.queue) and (not job.key or is_sound(p .. 'key:' .. job.key, 'zset'))
  for _, ids in ipairs({ job.outside or {}, job.inside or {} }) do
    for _, id in ipairs(ids) do is_usable = is_usable and is_sound(p .. 'next:' .. id, 'zset') end
  end
  if not is_usable then return redis.error_reply('DAMAGED ' .. damage[1]) end
  look_up(job.outside or {})
  new[nr] = job
end
if #missing > 1 then return missing end
for _, job in ipairs(new) do
  local other = job.unique and #job.outside > 0 and call('HGET', p .. 'unique', job.unique)
  for _, id in ipairs(other and call('EXISTS', p .. 'job:' .. other) == 1 and job.outside or {}) do
    if id == other then return { 'itself', other } end
  end
end

