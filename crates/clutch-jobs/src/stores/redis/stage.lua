-- Jobs of a batch that nobody sees before it is committed. ARGV: the batch, then each as arrive.lua reads it.
local coming, SECONDS_MAX = p .. 'coming:' .. take(), 600
local unusable = refusal('', { [coming] = 'list' }, { coming })
if unusable then return unusable end
many('RPUSH', coming, ARGV, 2)
call('EXPIRE', coming, SECONDS_MAX)
return 1
