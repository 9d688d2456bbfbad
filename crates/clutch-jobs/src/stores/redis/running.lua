-- Returns of each plain job that runs: id, claim, runner.
local told = {}
each_runner(function(runner)
  local claims = call('HGETALL', p .. 'running:' .. runner)
  for nr = 1, #claims, 2 do
    local _, _, entry = claim_of(claims[nr + 1])
    if entry and entry <= #claims[nr + 1] then
      local last = #told
      told[last + 1], told[last + 2], told[last + 3] = claims[nr], claims[nr + 1], runner
    end
  end
end)
return told
