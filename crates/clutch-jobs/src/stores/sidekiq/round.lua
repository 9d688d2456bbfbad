-- ARGV: runner, the number of the round, the length of its lease, the day, how many it wants; how many queues, and each;
-- then of each job that ended: 1 if it failed, its queue, its payload, where it goes, in which queue, the score, its new
-- payload, its id.
-- Returns the places of those that were not this runner's any more, then of each fetched job: queue, payload; whether
-- it has a lease, without which it fetches nothing; what is left alone since its key is damaged.
local runner, number, length = take(), take(), take()
local day, limit = take(), tonumber(take())
local queues = {}
for nr = 1, tonumber(take()) do queues[nr] = take() end
local problem = refused('cancelling', 'orphaned', 'queues', 'renewals')
  or format_refused('dead', 'paused', 'queues', 'retry', 'schedule')
if problem then return problem end
local FIELDS = 8 -- of a job that ended
for first = at + 1, #ARGV, FIELDS do
  if not is_sound(backup_of(runner, ARGV[first + 1]), 'list') then return redis.error_reply('DAMAGED ' .. damage[1]) end
end
local processed, failed, nr, lost, told = 0, 0, 0, {}, {}
local are_cancelling = at < #ARGV and call('EXISTS', p .. 'cancelling') == 1
while at < #ARGV do
  local has_failed, queue, payload = take(), take(), take()
  local where, to, score, new, id = take(), take(), take(), take(), take()
  -- Somebody was told that it is cancelled: it does not run again.
  local is_cancelled = are_cancelling and call('SREM', p .. 'cancelling', id) == 1
  if is_cancelled and where ~= 'dead' then where = 'nowhere' end
  -- What cannot be put back stays, and is put back by a later renewal.
  if not is_possible(where, to) then
    failed = failed + has_failed
  -- From the end: what was fetched first is there, and ends first.
  elseif call('LREM', backup_of(runner, queue), -1, payload) == 1 then
    put(where, to, score, new)
    if where ~= 'front' then processed = processed + 1 end
    failed = failed + has_failed
  else
    lost[#lost + 1] = nr
  end
  nr = nr + 1
end

local function count(name, by)
  if by == 0 then return end
  try('INCRBY', n .. 'stat:' .. name, by)
  try('INCRBY', n .. 'stat:' .. name .. ':' .. day, by)
end

count('processed', processed)
count('failed', failed)

local function fetch(queue)
  local backup = backup_of(runner, queue)
  if not is_open(queue) or not is_sound(backup, 'list') then return end
  while #told < 2 * limit do
    local payload = call('LMOVE', n .. 'queue:' .. queue, backup, 'RIGHT', 'LEFT')
    if not payload then return end
    if #told == 0 or told[#told - 1] ~= queue then call('SADD', p .. 'queues', queue) end
    told[#told + 1] = queue
    told[#told + 1] = payload
  end
end

local is_leased = limit == 0 or has_lease(runner, number, length)
if is_leased and limit > 0 then
  for _, queue in ipairs(queues) do
    if call('SISMEMBER', n .. 'paused', queue) == 0 then fetch(queue) end
  end
end
return { lost, told, is_leased and 1 or 0, damage }
