-- At each connect: a version before kept leases as times. They are watched as others from now on.
for _, name in ipairs({ ':runners', ':leases' }) do
  local old = KEYS[1] .. name
  if redis.call('TYPE', old).ok == 'zset' then
    for _, holder in ipairs(redis.call('ZRANGE', old, 0, -1)) do
      redis.call('HSETNX', KEYS[1] .. ':renewals', holder, '0 30000')
    end
    redis.call('DEL', old)
  end
end
