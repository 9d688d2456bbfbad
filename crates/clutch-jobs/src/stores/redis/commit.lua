-- Commits a batch, with those of its jobs that come after others of it: these are enqueued first, for what comes before them
-- may have ended, and been deleted, before all is there. new.lua and committed.lua come after this.
-- ARGV: the batch, how many jobs of it were staged; how many keys these need, and each with its type; the jobs outside that
-- they come after, and which of these are there no more; then what new.lua takes.
local batch, staged = take(), tonumber(take())
local coming = p .. 'coming:' .. batch
local unusable = refused('all', 'arrivals', 'counts', 'holding', 'inboxes', 'scheduled', 'settings', 'unique')
if unusable then return unusable end
for _ = 1, tonumber(take()) do
  if not is_sound(p .. take(), take()) then return redis.error_reply('DAMAGED ' .. damage[1]) end
end
local outside = ids_in(take())
take_gone()
look_up(outside)
if #missing > 1 then return missing end
if call('LLEN', coming) ~= staged then return redis.error_reply('TRYAGAIN a batch came too slowly and has expired') end

