-- ARGV: now, how many, then of each: its id; an entry, or nothing and then queue, place, tool, attempts_max, due
-- (empty: at once), unique, key, key_limit, key_rate, tags, body.
-- Returns the place and the id of each that there was already.
local now, jobs = take(), tonumber(take())
-- The first write is of a kind that is refused when the memory is full, so nothing is half written.
local told = {}
local bodies, all, scheduled, entries = {}, {}, {}, {}

local function add(id, queue, place, tool, most, due, unique, key, limit, rate, tags, body)
  local state = due == '' and AVAILABLE or SCHEDULED
  local fields = { 'state', state, 'queue', queue, 'place', place, 'tool', tool, 'max', most }
  local function with(field, value)
    if value then
      fields[#fields + 1] = field
      fields[#fields + 1] = value
    end
  end
  with('due', due == '' and now or due)
  with('unique', unique)
  with('key', key)
  with('key_limit', limit)
  with('key_rate', rate)
  with('tags', tags)
  call('HSET', p .. 'job:' .. id, unpack(fields))
  if unique then call('HSET', p .. 'unique', unique, id) end
  bodies[#bodies + 1] = p .. 'body:' .. id
  bodies[#bodies + 1] = body
  all[#all + 1] = 0
  all[#all + 1] = id
  count(state, queue, 1)
  if state == AVAILABLE then return make_available(id, queue, place, key, limit) end
  scheduled[#scheduled + 1] = due
  scheduled[#scheduled + 1] = id
end

for nr = 1, jobs do
  local id, entry = take(), take()
  if entry ~= '' then
    push(entries, (parts_of(entry)), entry)
  else
    local queue, place, tool, most, due = take(), take(), take(), take(), take()
    local unique, key, limit, rate = take_optional(), take_optional(), take_optional(), take_optional()
    local tags, body = take_optional(), take()
    local other = unique and call('HGET', p .. 'unique', unique)
    -- One whose record is gone is no other.
    if other and call('EXISTS', p .. 'job:' .. other) == 1 then
      told[#told + 1] = nr
      told[#told + 1] = other
    else
      add(id, queue, place, tool, most, due, unique, key, limit, rate, tags, body)
    end
  end
end
for queue, list in pairs(entries) do put_entries('LPUSH', queue, list) end
for from = 1, #bodies, CHUNK do
  call('MSET', unpack(bodies, from, math.min(from + CHUNK - 1, #bodies)))
end
many('ZADD', p .. 'all', all)
many('ZADD', p .. 'scheduled', scheduled)
finish()
return told
