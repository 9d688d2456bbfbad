-- Returns the counts, the settings, and of each queue with plain jobs that wait how many these are; then of each queue
-- the time since when its first job waits.
local unusable = refused('counts', 'inboxes', 'settings')
if unusable then return unusable end
local counts, waiting, oldest = call('HGETALL', p .. 'counts'), {}, {}
local seen = {}

-- Of the two that may be first, the one that is.
local function look_at(queue)
  if seen[queue] or not is_open(queue) then return end
  seen[queue] = true
  local first = call('ZRANGE', p .. 'ready:' .. queue, 0, 0, 'WITHSCORES')
  local entry = call('LINDEX', p .. 'inbox:' .. queue, -1)
  local since = entry and created_of(entry)
  if first[1] and not (since and tonumber(since) < tonumber(first[2])) then
    since = fields_of(first[1], 'due')[1]
  end
  if since then
    oldest[#oldest + 1] = queue
    oldest[#oldest + 1] = since
  end
end

for nr = 1, #counts, 2 do
  if string.sub(counts[nr], 1, 2) == AVAILABLE .. ':' then look_at(string.sub(counts[nr], 3)) end
end
for _, queue in ipairs(call('SMEMBERS', p .. 'inboxes')) do
  if is_sound(p .. 'inbox:' .. queue, 'list') then
    waiting[#waiting + 1] = queue
    waiting[#waiting + 1] = call('LLEN', p .. 'inbox:' .. queue)
    look_at(queue)
  end
end
return { counts, call('HGETALL', p .. 'settings'), waiting, oldest }
