-- ARGV: names of commands. Returns those that this user may not run: each is tried once, with arguments that it refuses
-- or that change nothing.
local call, try, key = redis.call, redis.pcall, KEYS[1] .. ':none'

local HARMLESS = {
  DEL = {}, EXISTS = {}, EXPIRE = { 1 }, GET = {}, HDEL = { 'f' }, HEXISTS = { 'f' }, HGET = { 'f' }, HGETALL = {},
  HINCRBY = { 'f', 'x' }, HKEYS = {}, HLEN = {}, HMGET = { 'f' }, HSET = { 'f', 'v', 'f' }, HSETNX = { 'f', 'v' },
  INCRBY = { 'x' }, LINDEX = { 0 }, LLEN = {}, LPOP = {}, LMOVE = { key, 'LEFT', 'LEFT' }, LPUSH = { 'v' }, LRANGE = { 0, 0 },
  LREM = { 0, 'v' }, LSET = { 0, 'v' }, LTRIM = { 0, 0 }, MSET = { 'v', key }, PERSIST = {}, PEXPIRE = { 1 }, RPOP = {}, RPUSH = { 'v' },
  SADD = { 'v' }, SET = { 'v', 'XX' }, SISMEMBER = { 'v' }, SMEMBERS = {}, SRANDMEMBER = {}, SREM = { 'v' }, TYPE = {},
  XADD = { 'NOMKSTREAM', '*', 'f', 'v' }, ZADD = { 'x', 'v' }, ZCARD = {}, ZCOUNT = { 0, 0 }, ZRANGE = { 0, 0 },
  ZRANGEBYSCORE = { 0, 0 }, ZREM = { 'v' }, ZREMRANGEBYRANK = { 0, 0 }, ZREMRANGEBYSCORE = { 0, 0 },
  ZREVRANGEBYLEX = { '+', '-' }, ZSCORE = { 'v' },
}

-- Of Redis 6.2, and since 7.0.
local function is_forbidden(answer)
  local text = type(answer) == 'table' and answer.err or ''
  return string.find(text, 'NOPERM', 1, true)
    or string.find(text, "can't run this command", 1, true)
    or string.find(text, "can't access", 1, true)
    or string.find(text, 'ACL failure', 1, true)
end

local function may(command)
  local answer = command == 'TIME' and try('TIME') or try(command, key, unpack(HARMLESS[command]))
  return not is_forbidden(answer)
end

local told = {}
-- What one of them makes, this takes away.
if not may('DEL') then return { 'DEL' } end
for _, command in ipairs(ARGV) do
  if not may(command) then told[#told + 1] = command end
  call('DEL', key)
end
return told
