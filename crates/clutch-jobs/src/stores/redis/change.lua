-- ARGV: id, 'cancel', 'retry' or 'delete', now. Returns whether there was something to change.
local id, change, now = take(), take(), take()
local job = p .. 'job:' .. id
local was = call('HMGET', job, 'state', 'queue', 'place', 'key', 'unique', 'attempt', 'max')
local state, queue, place, key, unique = was[1], was[2], was[3], was[4], was[5]

-- Out of where a job in its state is; not of its key.
local function remove()
  count(state, queue, -1)
  if state == SCHEDULED then
    call('ZREM', p .. 'scheduled', id)
  elseif state == AVAILABLE then
    call('ZREM', p .. 'ready:' .. queue, id)
  else
    call('ZREM', p .. 'ended:' .. state, id)
    call('ZREM', p .. 'kept', id)
  end
end

local function free_names()
  if key and state == AVAILABLE then leave_key(id, key) end
  if unique and state < COMPLETED then call('HDEL', p .. 'unique', unique) end
end

local function cancel()
  if state == RUNNING then
    call('SADD', p .. 'cancelling', id)
    return 1
  end
  if state > RUNNING then return 0 end
  remove()
  free_names()
  count(CANCELLED, queue, 1)
  call('ZADD', p .. 'ended:' .. CANCELLED, now, id)
  call('HSET', job, 'state', CANCELLED, 'finished', now, 'reason', 'cancelled')
  return 1
end

local function retry()
  if state == AVAILABLE or state == RUNNING then return 0 end
  if unique and state > RUNNING and call('HSETNX', p .. 'unique', unique, id) == 0 then return 0 end
  remove()
  local most = math.max(tonumber(was[7]), (was[6] or 0) + 1)
  call('HDEL', job, 'finished', 'reason', 'result', 'until', 'rescues')
  call('HSET', job, 'state', AVAILABLE, 'due', now, 'max', most)
  count(AVAILABLE, queue, 1)
  make_available(id, queue, place, key)
  return 1
end

local function delete()
  if state == RUNNING then return 0 end
  remove()
  free_names()
  call('DEL', job, p .. 'body:' .. id, p .. 'errors:' .. id)
  call('ZREM', p .. 'all', id)
  return 1
end

if not state then return 0 end
local changed = ({ cancel = cancel, retry = retry, delete = delete })[change]()
finish()
return changed
