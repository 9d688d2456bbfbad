-- A part of a batch that was committed. ARGV: now, the batch, how many, and which jobs are there no more that these come
-- after.
local FIELDS = 16 -- of a job that is no entry
local time, batch, most, none = take(), take(), tonumber(take()), take()
local coming = p .. 'coming:' .. batch
local unusable = refused('arrivals') or refusal('', { [coming] = 'list' }, { coming })
if unusable then return unusable end
local some = call('LRANGE', coming, 0, most - 1)
local arguments = { time, none, 0 }
for _, text in ipairs(some) do
  local is_read, job = pcall(cjson.decode, text)
  local is_job = is_read and type(job) == 'table' and (#job == FIELDS or (#job == 2 and parts_of(tostring(job[2]))))
  if is_job then
    arguments[3] = arguments[3] + 1
    for _, argument in ipairs(job) do arguments[#arguments + 1] = argument end
  end
end
-- As new.lua takes them.
ARGV, at = arguments, 0

