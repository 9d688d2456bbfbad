-- Between new.lua and enqueue.lua: the job can be enqueued.
call('HSET', p .. 'cron', entry, tick)
