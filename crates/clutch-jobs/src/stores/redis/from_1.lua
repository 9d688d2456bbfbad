-- At each connect, of a version before. Leases were times: they are watched as others from now on.
for _, name in ipairs({ ':runners', ':leases' }) do
  local old = KEYS[1] .. name
  if redis.call('TYPE', old).ok == 'zset' then
    for _, holder in ipairs(redis.call('ZRANGE', old, 0, -1)) do
      redis.call('HSETNX', KEYS[1] .. ':renewals', holder, '0 30000')
    end
    redis.call('DEL', old)
  end
end

-- Until when results were kept.
local kept, delete = KEYS[1] .. ':kept', KEYS[1] .. ':delete:3'
if redis.call('TYPE', kept).ok == 'zset' and redis.call('EXISTS', delete) == 0 then
  redis.call('RENAME', kept, delete)
end
