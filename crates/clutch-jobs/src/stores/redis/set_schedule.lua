-- ARGV: the name of an entry of periodic jobs that is kept here, 'put', 'pause', 'resume' or 'remove', the entry as JSON or
-- nothing, now, how many there may be. Returns whether there was one to change, or −1: there are too many.
local unusable = refused('cron', 'schedules', 'schedules:paused')
if unusable then return unusable end
local name, change, entry, now, most = take(), take(), take(), take(), tonumber(take())
local schedules, paused = p .. 'schedules', p .. 'schedules:paused'
local known = call('HGET', schedules, name)

-- Ticks up to now are no business of it.
local function begin()
  local last = tonumber(call('HGET', p .. 'cron', name) or 0) or 0
  call('HSET', p .. 'cron', name, digits(math.max(last, tonumber(now))))
end

if change == 'put' then
  if not known and call('HLEN', schedules) >= most then return -1 end
  call('HSET', schedules, name, entry)
  if known ~= entry then begin() end
  return 1
end
if not known then return 0 end
if change == 'pause' then
  call('SADD', paused, name)
elseif change == 'resume' then
  if call('SREM', paused, name) == 1 then begin() end
else
  call('HDEL', schedules, name)
  call('HDEL', p .. 'cron', name)
  call('SREM', paused, name)
end
return 1
