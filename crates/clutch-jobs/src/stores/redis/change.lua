-- ARGV: id, 'cancel', 'retry', 'delete' or 'record' (a plain job that waits gets a record), now, the entry if the job was found to wait in its queue's line, and a body
-- that replaces its own, or nothing.
-- Returns whether there was something to change, or −1: it has no record, does not run, and has not ended; or −2: nothing
-- has changed yet, for its end was passed on, which takes its state and its result. Then it is to be called again.
local id, change, now, entry, body = take(), take(), take(), take(), take()
local job = p .. 'job:' .. id
local damaged = refused(unpack(ENDING_KINDS))
if damaged then return damaged end

local passing = (change == 'retry' or change == 'delete') and call('ZSCORE', p .. 'passing', id)
if passing then
  pass_on_of(id, passing, LINKS_MAX, now)
  finish()
  return -2
end

-- From which end of its line an entry is found sooner, as LREM has it: the newest are first.
local function nearer_end(inbox, found)
  local newest = created_of(call('LINDEX', inbox, 0) or '') or 0
  local oldest = created_of(call('LINDEX', inbox, -1) or '') or 0
  local created = created_of(found)
  return newest - created < created - oldest and 1 or -1
end

-- A plain job gets a record, whose state is returned; one that runs is left alone.
local function recorded()
  if entry ~= '' then
    local queue = parts_of(entry)
    local inbox = p .. 'inbox:' .. queue
    if call('LREM', inbox, nearer_end(inbox, entry), entry) == 0 then return end
    count(AVAILABLE, queue, 1)
    write_record(id, entry, AVAILABLE)
    return AVAILABLE
  end
  local found = find_plain(id)
  if found[1] ~= 'done' then return found[1] and RUNNING end
  call('HDEL', p .. 'done', id)
  write_claimed(id, found[2], COMPLETED)
  call('HSET', job, 'finished', found[3] or now)
  return COMPLETED
end

local known = fields_of(id, 'state')[1]
local state = known or recorded()
if not state then return -1 end
local was = fields_of(id, 'queue', 'place', 'key', 'key_limit', 'unique', 'attempt', 'max')
local queue, place, key, limit, unique = was[1], was[2], was[3], was[4], was[5]
if queue and not (is_open(queue) and (not key or is_sound(p .. 'key:' .. key, 'zset'))) then
  return redis.error_reply('DAMAGED ' .. damage[1])
end

-- Out of where a job in its state is.
local function remove()
  count(state, queue, -1)
  if state == SCHEDULED then
    call('ZREM', p .. 'scheduled', id)
  elseif state == AVAILABLE then
    call('ZREM', p .. 'ready:' .. queue, id)
  elseif state ~= WAITING then
    call('ZREM', p .. 'ended:' .. state, id)
    call('ZREM', p .. 'delete:' .. state, id)
  end
  if key and state < RUNNING then leave_key(id, key) end
  if unique and state < COMPLETED then call('HDEL', p .. 'unique', unique) end
end

local function cancel()
  if state == RUNNING then
    call('SADD', p .. 'cancelling', id)
    return 1
  end
  if state > RUNNING then return 0 end
  remove()
  count(CANCELLED, queue, 1)
  call('ZADD', p .. 'ended:' .. CANCELLED, now, id)
  call('HSET', job, 'state', CANCELLED, 'finished', now, 'reason', 'cancelled')
  note_links(id, FAILED)
  return 1
end

local function retry()
  if state == AVAILABLE or state == RUNNING then return 0 end
  if unique and state > RUNNING and call('HEXISTS', p .. 'unique', unique) == 1 then return 0 end
  remove()
  if unique then call('HSET', p .. 'unique', unique, id) end
  local most = math.max(tonumber(was[7]) or 1, (tonumber(was[6] or 0) or 0) + 1)
  if body ~= '' then call('SET', p .. 'body:' .. id, body) end
  call('HDEL', job, 'finished', 'reason', 'result', 'until', 'rescues', 'halted')
  -- Its deadline was for the attempts before.
  call('HSET', job, 'state', AVAILABLE, 'due', now, 'max', most, 'undated', 1)
  count(AVAILABLE, queue, 1)
  make_available(id, queue, place, key, limit)
  if state > COMPLETED then note_links(id, OPEN) end
  return 1
end

local function delete()
  if state == RUNNING then return 0 end
  remove()
  call('DEL', job, p .. 'body:' .. id, p .. 'errors:' .. id)
  call('ZREM', p .. 'all', id)
  if state ~= COMPLETED then note_links(id, FAILED) end
  forget_links(id)
  return 1
end

local function record()
  if not known and entry ~= '' then offer(id, queue, place) end
  return 1
end

if not (queue and number_of(place)) and state ~= RUNNING then
  set_aside(id)
  return 0
end
local changed = ({ cancel = cancel, retry = retry, delete = delete, record = record })[change]()
pass_on(LINKS_MAX, now)
finish()
return changed
