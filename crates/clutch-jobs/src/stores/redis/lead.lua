-- Whether the runner looks after the store from now on. With `leaves` it holds nothing any more.
local leader = redis.call('HMGET', P .. 'leader', 'name', 'until')
if asked.leaves then
  if leader[1] == asked.runner then redis.call('DEL', P .. 'leader') end
  if redis.call('ZSCORE', P .. 'runners', asked.runner) then
    -- What it may have left behind is another's at the next look.
    redis.call('ZADD', P .. 'runners', 0, asked.runner)
  end
  return 0
end
if leader[1] and leader[1] ~= asked.runner and tonumber(leader[2]) >= now then return 0 end
redis.call('HSET', P .. 'leader', 'name', asked.runner, 'until', int(asked.leased_until))
return 1
