-- new.lua comes after this, and is reached when the tick is later than the last one of its entry.
-- ARGV: the entry, the time of the tick, then what new.lua takes, or nothing: the entry is made known.
-- Returns the last tick of the entry, or what enqueue.lua tells.
local unusable = refused('cron')
if unusable then return unusable end
local entry, tick = take(), take()
local last = call('HGET', p .. 'cron', entry)
local has_job = ARGV[at + 1] ~= nil
if last and not (has_job and tonumber(tick) > (tonumber(last) or 0)) then return last end
if not has_job then
  call('HSET', p .. 'cron', entry, tick)
  return tick
end

