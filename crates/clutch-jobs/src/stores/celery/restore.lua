-- ARGV: 'scheduled' if they wait for their time, '' if their consumer has abandoned them; of each its tag, its text in
-- `unacked`, the list it goes into, its new text. Returns how many were as they were seen, and are back.
local from = take()
local problem = refused('scheduled') or format_refused()
if problem then return problem end
local restored = 0
while at < #ARGV do
  local tag, seen, key, text = take(), take(), take(), take()
  local is_as_seen = is_sound(key, 'list') and call('HGET', unacked, tag) == seen
  if is_as_seen and (from == '' or call('ZREM', p .. from, tag) == 1) then
    forget(tag)
    call('RPUSH', key, text)
    restored = restored + 1
  end
end
return restored
