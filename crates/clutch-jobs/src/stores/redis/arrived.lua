-- After enqueue.lua, of a part of a batch. Returns how many of it are still to come, and what enqueue.lua tells.
call('LTRIM', coming, #some, -1)
local left = call('LLEN', coming)
if left == 0 then
  call('ZREM', p .. 'arrivals', batch)
else
  call('ZADD', p .. 'arrivals', 'XX', call('TIME')[1], batch)
end
return { left, told }
