-- Returns of each entry of periodic jobs that is kept here its name, the entry, '1' if it is paused, and its last tick.
local unusable = refused('cron', 'schedules', 'schedules:paused')
if unusable then return unusable end
local found, told = call('HGETALL', p .. 'schedules'), {}
for nr = 1, #found, 2 do
  local name = found[nr]
  told[#told + 1], told[#told + 2] = name, found[nr + 1]
  told[#told + 1] = call('SISMEMBER', p .. 'schedules:paused', name) == 1 and '1' or '0'
  told[#told + 1] = call('HGET', p .. 'cron', name) or '0'
end
return told
