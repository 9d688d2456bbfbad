-- ARGV: of each job: the key it is in, after the namespace; 'zset' or 'list'; its payload; where it goes, in which
-- queue, the score, its new payload. Returns how many were still there and have moved. What cannot be put where it goes
-- stays where it is; if that is for a time, for some seconds longer.
local DAMAGED_SECONDS = 5
local problem = format_refused('dead', 'queues', 'retry', 'schedule')
if problem then return problem end

local function remove(key, kind, payload)
  if kind == 'zset' then return call('ZREM', key, payload) end
  return call('LREM', key, 1, payload)
end

local moved = 0
while at < #ARGV do
  local key, kind, payload = n .. take(), take(), take()
  local where, queue, score, new = take(), take(), take(), take()
  if not is_possible(where, queue) then
    if kind == 'zset' then call('ZADD', key, 'XX', score + DAMAGED_SECONDS, payload) end
  elseif is_sound(key, kind) and remove(key, kind, payload) == 1 then
    put(where, queue, score, new)
    moved = moved + 1
  end
end
return moved
