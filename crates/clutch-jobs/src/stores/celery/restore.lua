-- ARGV: 'scheduled' if they wait for their time, or else the time (seconds) since which nobody has renewed what is
-- abandoned; of each its tag, its text in `unacked`, the list it goes into, its new text. Returns how many were as they
-- were seen, and are back.
local from = take()
local problem = refused('keys', 'orphaned', 'renewals', 'scheduled') or format_refused()
if problem then return problem end

-- What a runner has, or waits outside of its queue, is no peer's: its lease tells when it is abandoned. A lease counts no
-- time in which nobody could renew, as the times in the index do.
local runners = call('SMEMBERS', p .. 'orphaned')
for _, runner in ipairs(call('HKEYS', renewals)) do runners[#runners + 1] = runner end
local function is_ours(tag)
  if call('HEXISTS', p .. 'keys', tag) == 1 then return true end
  for _, runner in ipairs(runners) do
    if is_sound(held_by(runner), 'hash') and call('HEXISTS', held_by(runner), tag) == 1 then return true end
  end
  return false
end

local function is_free(tag)
  if from == 'scheduled' then return call('ZREM', p .. from, tag) == 1 end
  local renewed_at = call('ZSCORE', index, tag)
  return renewed_at and tonumber(renewed_at) <= tonumber(from) and not is_ours(tag)
end

local restored = 0
while at < #ARGV do
  local tag, seen, key, text = take(), take(), take(), take()
  if is_sound(key, 'list') and call('HGET', unacked, tag) == seen and is_free(tag) then
    forget(tag)
    call('RPUSH', key, text)
    restored = restored + 1
  end
end
return restored
