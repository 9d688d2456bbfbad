-- ARGV: id. Returns its fields, its body and its errors; of a plain job what is kept of it, then its entry.
local id = take()
local fields = call('HGETALL', p .. 'job:' .. id)
if #fields > 0 then return { fields, call('GET', p .. 'body:' .. id), call('LRANGE', p .. 'errors:' .. id, 0, -1) } end
return find_plain(id)
