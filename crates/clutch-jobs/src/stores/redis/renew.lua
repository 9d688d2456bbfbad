-- ARGV: runner, the number of its last round, the length of its lease, now, the ids that it holds. One that has had no
-- round takes its lease.
-- Returns false when the lease had lapsed; otherwise the ids that are to be stopped, and those that are not its own.
local runner, number, length, now = take(), tonumber(take()), take(), take()
local running = p .. 'running:' .. runner
local damaged = refused(unpack(ENDING_KINDS)) or refusal(p, { ['running:' .. runner] = 'hash' }, { 'running:' .. runner })
if damaged then return damaged end
if number == 0 then take_lease(runner, length) end
if not raise(runner, length) then return false end

-- The answer to its claim was lost.
local function release(id, claim, entry, of)
  if entry <= #claim and not is_cancelling(id) then
    local queue = parts_of(string.sub(claim, entry))
    if not queue then return set_aside(id, RUNNING, of) end
    count(RUNNING, queue, -1)
    return put_entries('RPUSH', queue, { string.sub(claim, entry) })
  end
  local job = p .. 'job:' .. id
  write_claimed(id, claim, RUNNING)
  local was = fields_of(id, 'attempt', 'queue', 'place', 'key', 'unique')
  local queue = was[2]
  if not queue or not number_of(was[3]) then return set_aside(id, RUNNING, of) end
  count(RUNNING, queue, -1)
  call('HSET', job, 'attempt', math.max(0, (tonumber(was[1]) or 1) - 1))
  call('HDEL', job, 'runner', 'at')
  if is_cancelling(id) then
    push(removed, p .. 'cancelling', id)
    call('HSET', job, 'state', CANCELLED, 'finished', now, 'reason', 'cancelled')
    return finished(id, CANCELLED, queue, was[4], was[5], now)
  end
  call('HSET', job, 'state', AVAILABLE)
  count(AVAILABLE, queue, 1)
  offer(id, queue, was[3])
end

local held, stopped, lost, released = {}, {}, {}, {}
local are_cancelling = call('EXISTS', p .. 'cancelling') == 1
for nr = at + 1, #ARGV do
  local id = ARGV[nr]
  held[id] = true
  if call('HEXISTS', running, id) == 0 then
    lost[#lost + 1] = id
  elseif are_cancelling and is_cancelling(id) then
    stopped[#stopped + 1] = id
  end
end
for _, id in ipairs(call('HKEYS', running)) do
  if not held[id] then
    local claim = call('HGET', running, id)
    local round, _, _, queue, entry = claim_of(claim)
    -- What was claimed since belongs to a later renewal: this one was late.
    -- One that cannot be put back is tried again by the next.
    if (not round or tonumber(round) <= number) and (not queue or is_open(queue)) then
      release(id, claim, entry or #claim + 1, queue)
      released[#released + 1] = id
    end
  end
end
flush_endings()
pass_on(LINKS_MAX, now)
finish()
many('HDEL', running, released)
return { stopped, lost }
