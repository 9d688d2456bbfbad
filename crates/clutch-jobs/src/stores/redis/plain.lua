-- Where plain jobs are that run or have ended. Appended to common.lua by the scripts that need it.

local unusable = refused('done', 'orphaned', 'renewals')
if unusable then return unusable end

local function each_runner(look)
  for _, names in ipairs({ call('HKEYS', renewals), call('SMEMBERS', p .. 'orphaned') }) do
    for _, runner in ipairs(names) do
      if is_sound(p .. 'running:' .. runner, 'hash') and look(runner) then return end
    end
  end
end

-- Numbers of rounds are smaller than times.
local EPOCH = 1e11

-- 'done', its claim, and when it finished, unless that was by a version before; or 'running', and its claim.
local function find_plain(id)
  local done = call('HGET', p .. 'done', id)
  if done then
    local first = string.match(done, '^%d+')
    return { 'done', done, first and tonumber(first) > EPOCH and first }
  end
  local found
  each_runner(function(runner)
    local claim = call('HGET', p .. 'running:' .. runner, id)
    if claim then found = { 'running', claim, '' } end
    return claim
  end)
  return found or {}
end


-- Of one that has a record.
local function body_of(id)
  local body = try('GET', p .. 'body:' .. id)
  return type(body) == 'string' and body
end

local function errors_of(id)
  local errors = try('LRANGE', p .. 'errors:' .. id, 0, -1)
  return errors.err and {} or errors
end
