-- Enqueues what new.lua has read. Returns the place and the id of each that there was already.
-- The first write is of a kind that is refused when the memory is full, so nothing is half written.
local told = {}
local bodies, all, scheduled, entries, links = {}, {}, {}, {}, {}
-- By ids of this batch: those that there were already in their place.
local same = {}

-- Of a new job: to those that it comes after.
local function link(job)
  local id, after, waits, halts, failed = job.id, job.outside, 0, 0, nil
  for _, parent in ipairs(job.inside) do
    -- What is yet to come has not ended.
    after[#after + 1] = same[parent] or parent
    parents[after[#after]] = parents[after[#after]] or AVAILABLE
  end
  for nr, parent in ipairs(after) do
    local state, to = parents[parent], OPEN
    if state == COMPLETED then
      to = MET
      call('HSET', p .. 'results:' .. id, nr - 1, fields_of(parent, 'result')[1] or '')
    elseif state == GONE or state >= CANCELLED then
      to = job.runs_anyway and MET or FAILED
      failed = failed or parent
    end
    if to == OPEN then waits = waits + 1 elseif to == FAILED then halts = halts + 1 end
    if state ~= GONE then push(links, parent, to, id .. ':' .. (nr - 1)) end
  end
  many('RPUSH', p .. 'after:' .. id, after)
  call('HSET', p .. 'job:' .. id, 'follows', #after, 'waits', waits, 'halts', halts)
  if job.runs_anyway then call('HSET', p .. 'job:' .. id, 'anyway', 1) end
  turn(id, failed, now)
end

-- What comes after a job of a batch that is there already comes after that one.
local function link_to(other, id)
  same[id], parents[other] = other, fields_of(other, 'state')[1]
  if call('SREM', p .. 'parents', id) == 0 then return end
  local behind = call('ZRANGE', p .. 'next:' .. id, 0, -1)
  for _, member in ipairs(behind) do
    local child, nr = string.match(member, '^(.*):(%d+)$')
    push(links, other, OPEN, member)
    try('LSET', p .. 'after:' .. child, nr, other)
  end
  call('DEL', p .. 'next:' .. id)
end

local function add(job)
  local id, state = job.id, job.due == '' and AVAILABLE or SCHEDULED
  local follows = #job.outside + #job.inside > 0
  if follows then state = WAITING end
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
  if follows then
    link(job)
    parents[id] = fields_of(id, 'state')[1]
    return
  end
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
    link_to(other, job.id)
  else
    add(job)
  end
end
for queue, list in pairs(entries) do put_entries('LPUSH', queue, list) end
for from = 1, #bodies, CHUNK do
  call('MSET', unpack(bodies, from, math.min(from + CHUNK - 1, #bodies)))
end
many('ZADD', p .. 'all', all)
local names = {}
for parent, list in pairs(links) do
  many('ZADD', p .. 'next:' .. parent, list)
  names[#names + 1] = parent
end
many('SADD', p .. 'parents', names)
many('ZADD', p .. 'scheduled', scheduled)
finish()
