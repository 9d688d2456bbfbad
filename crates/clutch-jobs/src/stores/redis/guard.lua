-- Comes first in all scripts. The server undoes nothing of a script that fails, so what can fail is asked for before the
-- first write: whether a key that somebody else has written is of our type. What waits in such a key is left alone, and
-- named; the rest goes on.
local call, try = redis.call, redis.pcall

local DAMAGE_MAX = 10
local damage, are_sound = {}, {}

-- What is wrong with a key that is to be of this type; nothing if it is, or is not there.
local function wrong(key, kind)
  local found = call('TYPE', key).ok
  if found ~= 'none' and found ~= kind then
    return 'its key ' .. key .. ' is a ' .. found .. ', and only a ' .. kind .. ' is allowed there: delete or rename it'
  end
end

local function is_sound(key, kind)
  local known = are_sound[key]
  if known ~= nil then return known end
  local why = wrong(key, kind)
  are_sound[key] = not why
  if why and #damage < DAMAGE_MAX then damage[#damage + 1] = why end
  return not why
end

-- The answer of a script that did nothing since one of these keys is of another type.
local function refusal(prefix, kinds, names)
  for _, name in ipairs(names) do
    local why = wrong(prefix .. name, kinds[name])
    if why then return redis.error_reply('DAMAGED ' .. why) end
  end
end

