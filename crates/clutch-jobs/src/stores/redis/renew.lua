-- Returns false when the lease had lapsed, else the jobs that were cancelled meanwhile.
local runner = asked.runner
if not redis.call('ZSCORE', P .. 'runners', runner) then return false end
redis.call('ZADD', P .. 'runners', int(asked.leased_until), runner)
local held = {}
for _, id in ipairs(asked.held) do held[id] = true end
for _, id in ipairs(redis.call('SMEMBERS', P .. 'running:' .. runner)) do
  if not held[id] then put_back(id, runner) end
end
local cancelled = {}
for _, id in ipairs(redis.call('SMEMBERS', P .. 'cancelling:' .. runner)) do
  if held[id] then cancelled[#cancelled + 1] = id end
end
redis.call('DEL', P .. 'cancelling:' .. runner)
finish()
return cancelled
