-- ARGV: a queue, or nothing for the names of those with plain jobs that wait; how many places before its end to begin,
-- and how many to look at; an id, or nothing. Returns the places that are left, and the entries from there, the newest
-- first, or only the one with that id. Places are counted from the end, so that none is missed when others take what is
-- there meanwhile.
local queue, from, look, id = take(), tonumber(take()), tonumber(take()), take()
local unusable = refused('inboxes')
if unusable then return unusable end
if queue == '' then return call('SMEMBERS', p .. 'inboxes') end
local inbox = p .. 'inbox:' .. queue
if not is_sound(inbox, 'list') then return { 0 } end
local length = call('LLEN', inbox)
from = math.min(from < 0 and length or from, length)
if from == 0 then return { 0 } end
local entries = call('LRANGE', inbox, -from, math.min(-from + look - 1, -1))
local told = { from - #entries }
for _, entry in ipairs(entries) do
  if id == '' or id_of(entry) == id then told[#told + 1] = entry end
end
return told
