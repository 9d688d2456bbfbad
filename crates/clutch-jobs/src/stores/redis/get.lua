-- ARGV: id, how many links to tell at most. Returns the ids of jobs that it comes after, and of those that come after it;
-- then its fields, its body and its errors; or of a plain job what is kept of it, then its entry.
local id, most = take(), take()
local after, behind, children = p .. 'after:' .. id, p .. 'next:' .. id, {}
for _, member in ipairs(is_sound(behind, 'zset') and call('ZRANGE', behind, 0, most - 1) or {}) do
  local child = string.match(member, '^(.*):')
  if child and call('EXISTS', p .. 'job:' .. child) == 1 then children[#children + 1] = child end
end
local told = { is_sound(after, 'list') and call('LRANGE', after, 0, most - 1) or {}, children }
local fields = is_sound(p .. 'job:' .. id, 'hash') and call('HGETALL', p .. 'job:' .. id) or {}
for nr, part in ipairs(#fields > 0 and { fields, body_of(id), errors_of(id) } or find_plain(id)) do told[nr + 2] = part end
return told
