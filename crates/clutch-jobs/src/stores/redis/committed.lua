-- Between new.lua and enqueue.lua: from now on all jobs of the batch are enqueued.
call('ZADD', p .. 'arrivals', call('TIME')[1], batch)
call('PERSIST', coming)
