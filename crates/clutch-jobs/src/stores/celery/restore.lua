-- ARGV: 'scheduled' if they wait for their time, or else the time (seconds) since which nobody has renewed what is
-- abandoned; the time; of each message and list that it goes into: its tag, its text in `unacked`, the list, its new text.
-- What is for several lists comes several times in a row. Returns how many were as they were seen and are back, and how
-- many were renewed, since they are no peer's.
local from, now = take(), take()
local problem = refused('keys', 'orphaned', 'renewals', 'scheduled') or format_refused()
if problem then return problem end

-- What a runner has, or waits outside of its queue, is no peer's: its lease tells when it is abandoned. A lease counts no
-- time in which nobody could renew, as the times in the index do.
local held = nil
local function is_ours(tag)
  if not held then
    held = {}
    local runners = call('SMEMBERS', p .. 'orphaned')
    for _, runner in ipairs(call('HKEYS', renewals)) do runners[#runners + 1] = runner end
    for _, runner in ipairs(runners) do
      if is_sound(held_by(runner), 'hash') then
        for _, one in ipairs(call('HKEYS', held_by(runner))) do held[one] = true end
      end
    end
  end
  return held[tag] or call('HEXISTS', p .. 'keys', tag) == 1
end

local restored, renewed = 0, 0
local function is_free(tag, seen)
  if call('HGET', unacked, tag) ~= seen then return false end
  if from == 'scheduled' then return call('ZREM', p .. from, tag) == 1 end
  local renewed_at = call('ZSCORE', index, tag)
  if not renewed_at or tonumber(renewed_at) > tonumber(from) then return false end
  if not is_ours(tag) then return true end
  call('ZADD', index, 'XX', now, tag)
  renewed = renewed + 1
  return false
end

local last, last_is_free = nil, false
while at < #ARGV do
  local tag, seen, key, text = take(), take(), take(), take()
  if tag ~= last then
    last, last_is_free = tag, is_sound(key, 'list') and is_free(tag, seen)
    if last_is_free then
      forget(tag)
      restored = restored + 1
    end
  end
  if last_is_free and is_sound(key, 'list') then call('RPUSH', key, text) end
end
return { restored, renewed }
