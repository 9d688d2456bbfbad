-- Where plain jobs are that run or have ended. Appended to common.lua by the scripts that need it.

local function each_runner(look)
  for _, runner in ipairs(call('HKEYS', renewals)) do
    if look(runner) then return end
  end
  for _, runner in ipairs(call('SMEMBERS', p .. 'orphaned')) do
    if look(runner) then return end
  end
end

-- 'done', its claim, and when it finished; or 'running', and its claim.
local function find_plain(id)
  local done = call('HGET', p .. 'done', id)
  if done then return { 'done', done, call('ZSCORE', p .. 'ended:' .. COMPLETED, id) } end
  local found
  each_runner(function(runner)
    local claim = call('HGET', p .. 'running:' .. runner, id)
    if claim then found = { 'running', claim, '' } end
    return claim
  end)
  return found or {}
end

