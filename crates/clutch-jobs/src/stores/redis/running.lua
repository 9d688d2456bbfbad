-- Returns the claim of each plain job that runs.
local told = {}
each_runner(function(runner)
  local claims = call('HGETALL', p .. 'running:' .. runner)
  for nr = 1, #claims, 2 do
    local _, _, _, _, entry = claim_of(claims[nr + 1])
    if entry and entry <= #claims[nr + 1] then told[#told + 1] = claims[nr + 1] end
  end
end)
return told
