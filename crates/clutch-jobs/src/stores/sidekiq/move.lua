-- ARGV: of each job: the key it is in, after the namespace; 'zset' or 'list'; its payload; where it goes, in which
-- queue, the score, its new payload. Returns how many were still there.
local moved = 0
while at < #ARGV do
  local key, kind, payload = n .. take(), take(), take()
  local where, queue, score, new = take(), take(), take(), take()
  local removed = kind == 'zset' and call('ZREM', key, payload) or kind == 'list' and call('LREM', key, 1, payload)
  if removed == 1 then
    put(where, queue, score, new)
    moved = moved + 1
  end
end
return moved
