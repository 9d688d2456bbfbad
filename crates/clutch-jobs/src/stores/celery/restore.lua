-- ARGV: of each message that its consumer has abandoned: its tag, its text in `unacked`, the list it goes into, its new
-- text. Returns how many were as they were seen, and are back.
local problem = format_refused()
if problem then return problem end
local restored = 0
while at < #ARGV do
  local tag, seen, key, text = take(), take(), take(), take()
  if is_sound(key, 'list') and call('HGET', unacked, tag) == seen then
    forget(tag)
    call('RPUSH', key, text)
    restored = restored + 1
  end
end
return restored
