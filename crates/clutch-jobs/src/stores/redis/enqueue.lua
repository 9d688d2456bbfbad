-- ARGV: now, how many, then of each: queue, priority, tool, attempts_max, due (empty: at once), unique, key, tags, body.
-- Returns the first new id, then the place and the id of each that there was already.
local now, jobs = take(), tonumber(take())
-- The first write: when the memory is full it is refused, and nothing is half written.
local id = call('INCRBY', p .. 'id', jobs) - jobs
local told = { id + 1 }
local bodies, all, scheduled = {}, {}, {}
local PLACES = 2 ^ 45 -- ids below it stay exact beside a priority in a double

local function add(queue, priority, tool, most, due, unique, key, tags, body)
  id = id + 1
  local name = string.format('%.0f', id)
  local place = string.format('%.0f', id - priority * PLACES)
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
  with('tags', tags)
  call('HSET', p .. 'job:' .. name, unpack(fields))
  if unique then call('HSET', p .. 'unique', unique, name) end
  bodies[#bodies + 1] = p .. 'body:' .. name
  bodies[#bodies + 1] = body
  all[#all + 1] = name
  all[#all + 1] = name
  count(state, queue, 1)
  if state == AVAILABLE then return make_available(name, queue, place, key) end
  scheduled[#scheduled + 1] = due
  scheduled[#scheduled + 1] = name
end

for nr = 1, jobs do
  local queue, priority, tool, most, due = take(), take(), take(), take(), take()
  local unique, key, tags, body = take_optional(), take_optional(), take_optional(), take()
  local other = unique and call('HGET', p .. 'unique', unique)
  if other then
    told[#told + 1] = nr
    told[#told + 1] = other
  else
    add(queue, priority, tool, most, due, unique, key, tags, body)
  end
end
for from = 1, #bodies, CHUNK do
  call('MSET', unpack(bodies, from, math.min(from + CHUNK - 1, #bodies)))
end
many('ZADD', p .. 'all', all)
many('ZADD', p .. 'scheduled', scheduled)
finish()
return told
