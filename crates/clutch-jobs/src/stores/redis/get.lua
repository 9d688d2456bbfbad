-- ARGV: id. Returns its fields, its body and its errors.
local id = take()
return { call('HGETALL', p .. 'job:' .. id), call('GET', p .. 'body:' .. id), call('LRANGE', p .. 'errors:' .. id, 0, -1) }
