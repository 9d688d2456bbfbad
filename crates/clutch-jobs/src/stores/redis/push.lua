-- ARGV: a queue, then entries of plain jobs. Returns whether none waited there before.
local queue = take()
local damaged = refused('inboxes') or refusal(p, { ['inbox:' .. queue] = 'list' }, { 'inbox:' .. queue })
if damaged then return damaged end
local is_new = call('EXISTS', p .. 'inbox:' .. queue) == 0
local entries = {}
for nr = 2, #ARGV do entries[nr - 1] = ARGV[nr] end
put_entries('LPUSH', queue, entries)
finish()
return is_new and 1 or 0
