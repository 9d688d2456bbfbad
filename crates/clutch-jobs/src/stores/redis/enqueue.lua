-- Enqueues what new.lua has read. Returns the place and the id of each that there was already.
-- The first write is of a kind that is refused when the memory is full, so nothing is half written.
local told = {}
local bodies, all, scheduled, entries = {}, {}, {}, {}

local function add(job)
  local id, state = job.id, job.due == '' and AVAILABLE or SCHEDULED
  local fields = { 'state', state, 'queue', job.queue, 'place', job.place, 'tool', job.tool, 'max', job.most }
  local function with(field, value)
    if value then
      fields[#fields + 1] = field
      fields[#fields + 1] = value
    end
  end
  with('due', job.due == '' and now or job.due)
  with('unique', job.unique)
  with('key', job.key)
  with('key_limit', job.limit)
  with('key_rate', job.rate)
  with('tags', job.tags)
  call('HSET', p .. 'job:' .. id, unpack(fields))
  if job.unique then call('HSET', p .. 'unique', job.unique, id) end
  bodies[#bodies + 1] = p .. 'body:' .. id
  bodies[#bodies + 1] = job.body
  all[#all + 1] = 0
  all[#all + 1] = id
  count(state, job.queue, 1)
  if state == AVAILABLE then return make_available(id, job.queue, job.place, job.key, job.limit) end
  scheduled[#scheduled + 1] = job.due
  scheduled[#scheduled + 1] = id
end

for nr, job in ipairs(new) do
  local other = job.unique and call('HGET', p .. 'unique', job.unique)
  if job.entry ~= '' then
    push(entries, job.queue, job.entry)
  -- One whose record is gone is no other.
  elseif other and call('EXISTS', p .. 'job:' .. other) == 1 then
    told[#told + 1] = nr
    told[#told + 1] = other
  else
    add(job)
  end
end
for queue, list in pairs(entries) do put_entries('LPUSH', queue, list) end
for from = 1, #bodies, CHUNK do
  call('MSET', unpack(bodies, from, math.min(from + CHUNK - 1, #bodies)))
end
many('ZADD', p .. 'all', all)
many('ZADD', p .. 'scheduled', scheduled)
finish()
