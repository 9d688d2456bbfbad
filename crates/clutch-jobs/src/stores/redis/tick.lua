-- enqueue.lua comes after this, and is reached when the tick is later than the last one of its entry.
-- ARGV: the entry, the time of the tick, then what enqueue.lua takes for one job, or nothing: the entry is made known.
-- Returns the last tick of the entry, or what enqueue.lua does.
local entry, tick = take(), take()
local last = call('HGET', p .. 'cron', entry)
local has_job = ARGV[at + 1] ~= nil
if last and not (has_job and tonumber(tick) > tonumber(last)) then return last end
call('HSET', p .. 'cron', entry, tick)
if not has_job then return tick end

