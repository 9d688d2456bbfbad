-- ARGV: id. Returns its fields, its body and its errors; of a plain job what is kept of it, then its entry.
local id = take()
local fields = is_sound(p .. 'job:' .. id, 'hash') and call('HGETALL', p .. 'job:' .. id) or {}
if #fields > 0 then return { fields, body_of(id), errors_of(id) } end
return find_plain(id)
