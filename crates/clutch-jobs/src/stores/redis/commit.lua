-- From now on all jobs of a batch are enqueued. ARGV: the batch, how many jobs it has, then the keys that these need, with
-- the type of each.
local batch, count = take(), tonumber(take())
local coming = p .. 'coming:' .. batch
local unusable = refused('all', 'arrivals', 'counts', 'holding', 'inboxes', 'scheduled', 'settings', 'unique')
if unusable then return unusable end
while at < #ARGV do
  if not is_sound(p .. take(), take()) then return redis.error_reply('DAMAGED ' .. damage[1]) end
end
if call('LLEN', coming) ~= count then return redis.error_reply('TRYAGAIN a batch came too slowly and has expired') end
call('ZADD', p .. 'arrivals', call('TIME')[1], batch)
call('PERSIST', coming)
return 1
