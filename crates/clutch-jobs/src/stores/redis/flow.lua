-- Links between jobs (flow.rs): what has become of a job is passed on along those behind it. Appended to common.lua by the
-- scripts that need it. A link is CHILD:NR in the set of its parent, with what it is as its score.
local OPEN, MET, FAILED = '0', '1', '2'
local SOURCES = { [OPEN] = { FAILED }, [MET] = { OPEN, FAILED }, [FAILED] = { OPEN } }
local LINKS_MAX = 1000 -- flow.rs
-- After so many milliseconds what waits in vain for a damaged key is tried again.
local DAMAGED_PAUSE = 5000

local are_parents

-- Notes what is to become of the links behind a job, if there are any. That it completed is not undone.
local function note_links(parent, link)
  if are_parents == nil then are_parents = call('EXISTS', p .. 'parents') == 1 end
  if not are_parents or call('SISMEMBER', p .. 'parents', parent) == 0 then return end
  if call('ZSCORE', p .. 'passing', parent) ~= MET then call('ZADD', p .. 'passing', link, parent) end
end

-- Of a job that has ended in this state.
local function note_end(parent, state)
  note_links(parent, state == COMPLETED and MET or FAILED)
end

-- What is kept of the links of a job that is deleted.
local function forget_links(id)
  call('DEL', p .. 'after:' .. id, p .. 'results:' .. id)
  if call('ZSCORE', p .. 'passing', id) then return end
  if call('SREM', p .. 'parents', id) == 1 then call('DEL', p .. 'next:' .. id) end
end

-- What becomes of a job that comes after others, from the counts of its links. `parent`: of one that has failed.
local function turn(id, parent, now)
  local job = p .. 'job:' .. id
  local was = fields_of(id, 'state', 'queue', 'place', 'waits', 'halts', 'halted', 'key', 'key_limit', 'unique', 'due')
  local state, queue, place, key, unique = was[1], was[2], was[3], was[7], was[9]
  local waits, halts = tonumber(was[4]) or 0, tonumber(was[5]) or 0
  if not queue or not number_of(place) then return end
  if state == WAITING and halts > 0 then
    count(WAITING, queue, -1)
    count(CANCELLED, queue, 1)
    local reason = 'job ' .. parent .. ', which it comes after, did not complete'
    call('HSET', job, 'state', CANCELLED, 'finished', now, 'halted', 1, 'reason', reason)
    call('ZADD', p .. 'ended:' .. CANCELLED, now, id)
    if unique then call('HDEL', p .. 'unique', unique) end
    return note_links(id, FAILED)
  end
  if state == CANCELLED and was[6] and halts == 0 then
    if unique and call('HSETNX', p .. 'unique', unique, id) == 0 then return end
    count(CANCELLED, queue, -1)
    count(WAITING, queue, 1)
    state = WAITING
    call('HDEL', job, 'finished', 'halted', 'reason')
    call('HSET', job, 'state', WAITING)
    call('ZREM', p .. 'ended:' .. CANCELLED, id)
    call('ZREM', p .. 'delete:' .. CANCELLED, id)
    note_links(id, OPEN)
  end
  if state ~= WAITING or waits > 0 then return end
  count(WAITING, queue, -1)
  local due = number_of(was[10]) or now
  if not is_open(queue) or (key and not is_sound(p .. 'key:' .. key, 'zset')) then due = digits(now + DAMAGED_PAUSE) end
  if tonumber(due) > tonumber(now) then
    count(SCHEDULED, queue, 1)
    call('HSET', job, 'state', SCHEDULED, 'due', due)
    call('ZADD', p .. 'scheduled', due, id)
  else
    count(AVAILABLE, queue, 1)
    call('HSET', job, 'state', AVAILABLE, 'due', now)
    make_available(id, queue, place, key, was[8])
  end
end

local function pass_on_along(parent, member, from, link, now)
  local links = p .. 'next:' .. parent
  local id, nr = string.match(member, '^(.*):(%d+)$')
  local job = p .. 'job:' .. (id or '')
  local was = fields_of(id or '', 'queue', 'waits', 'halts', 'anyway')
  -- It is there no more.
  if not was[1] then
    call('ZREM', links, member)
    return 0
  end
  local to = link == FAILED and was[4] and MET or link
  local results = p .. 'results:' .. id
  if link == MET and is_sound(results, 'hash') then call('HSET', results, nr, fields_of(parent, 'result')[1] or '') end
  call('ZADD', links, to, member)
  local waits, halts = tonumber(was[2]) or 0, tonumber(was[3]) or 0
  if from == OPEN then waits = waits - 1 else halts = halts - 1 end
  if to == OPEN then waits = waits + 1 elseif to == FAILED then halts = halts + 1 end
  call('HSET', job, 'waits', waits, 'halts', halts)
  turn(id, parent, now)
  return 1
end

-- Passes on what was noted of one job, along so many links at most. Returns how many it found, and along how many it was
-- passed on.
local function pass_on_of(parent, link, limit, now)
  local found, passed = 0, 0
  for _, from in ipairs(is_sound(p .. 'next:' .. parent, 'zset') and SOURCES[link] or {}) do
    local members = call('ZRANGEBYSCORE', p .. 'next:' .. parent, from, from, 'LIMIT', 0, limit - found)
    for _, member in ipairs(members) do passed = passed + pass_on_along(parent, member, from, link, now) end
    found = found + #members
  end
  if found < limit then
    call('ZREM', p .. 'passing', parent)
    if call('EXISTS', p .. 'job:' .. parent) == 0 and call('HEXISTS', p .. 'done', parent) == 0 then
      if call('SREM', p .. 'parents', parent) == 1 then call('DEL', p .. 'next:' .. parent) end
    end
  end
  return found, passed
end

-- Passes on what was noted, along so many links at most. Returns along how many.
local function pass_on(limit, now)
  local passing = p .. 'passing'
  if call('EXISTS', passing) == 0 then return 0 end
  local left, passed = limit, 0
  while left > 0 do
    local parent, link = unpack(call('ZRANGE', passing, 0, 0, 'WITHSCORES'))
    if not parent then break end
    local found, along = pass_on_of(parent, link, left, now)
    left, passed = left - found, passed + along
  end
  return passed
end
