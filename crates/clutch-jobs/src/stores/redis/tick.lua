-- new.lua comes after this, and is reached when the tick is later than the last one of its entry.
-- ARGV: the entry, as it was read if it is kept here, or nothing, the time of the tick, what is added to the server's
-- clock, how far the tick may be ahead of it, then what new.lua takes, or nothing: the entry is made known.
-- Returns the last tick of the entry, 'ahead' if this one is too far ahead, or what enqueue.lua tells.
local unusable = refused('cron', 'schedules', 'schedules:paused')
if unusable then return unusable end
local entry, kept, tick, shift, AHEAD_MAX = take(), take(), take(), take(), take()
local time = call('TIME')
if tonumber(tick) > time[1] * 1000 + shift + AHEAD_MAX then return 'ahead' end
-- Of an entry that is gone, paused or another it is over.
local is_over = kept ~= '' and (call('HGET', p .. 'schedules', entry) ~= kept
  or call('SISMEMBER', p .. 'schedules:paused', entry) == 1)
if is_over then return tick end
local last = call('HGET', p .. 'cron', entry)
local has_job = ARGV[at + 1] ~= nil
if last and not (has_job and tonumber(tick) > (tonumber(last) or 0)) then return last end
if not has_job then
  call('HSET', p .. 'cron', entry, tick)
  return tick
end

