-- new.lua comes after this, and is reached when the tick is later than the last one of its entry.
-- ARGV: the entry, the time of the tick, what is added to the server's clock, how far the tick may be ahead of it, then what new.lua takes, or nothing: the entry is made known.
-- Returns the last tick of the entry, 'ahead' if this one is too far ahead, or what enqueue.lua tells.
local unusable = refused('cron')
if unusable then return unusable end
local entry, tick, shift, AHEAD_MAX = take(), take(), take(), take()
local time = call('TIME')
if tonumber(tick) > time[1] * 1000 + shift + AHEAD_MAX then return 'ahead' end
local last = call('HGET', p .. 'cron', entry)
local has_job = ARGV[at + 1] ~= nil
if last and not (has_job and tonumber(tick) > (tonumber(last) or 0)) then return last end
if not has_job then
  call('HSET', p .. 'cron', entry, tick)
  return tick
end

