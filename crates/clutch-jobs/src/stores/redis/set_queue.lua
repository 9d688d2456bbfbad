-- ARGV: the name of a setting of a queue, and its value; empty: none.
local name, value = take(), take()
local unusable = refused('settings')
if unusable then return unusable end
if value == '' then call('HDEL', p .. 'settings', name) else call('HSET', p .. 'settings', name, value) end
has_news = true
finish()
return 1
