-- What all scripts share; each is appended to this one. KEYS[1] is the prefix of all keys, and 'clutch.celery'. Keys of
-- kombu begin with the prefix, those that only Clutch reads with KEYS[1].
local n = string.sub(KEYS[1], 1, -14)
local p = KEYS[1] .. ':'
local ARGV = ARGV

local KINDS = {
  cancelling = 'set', due = 'list', failing = 'list', failures = 'hash', keys = 'hash', leader = 'hash',
  malformed = 'list', orphaned = 'set', renewals = 'hash', rescues = 'hash', scheduled = 'zset', since = 'string',
}
local KINDS_OF_FORMAT = { unacked = 'hash', unacked_index = 'zset' }
local unacked, index = n .. 'unacked', n .. 'unacked_index'

-- What a script returns at once if one of its keys is of another type; those of the format, or our own.
local function refused(...) return refusal(p, KINDS, { ... }) end
local function format_refused() return refusal(n, KINDS_OF_FORMAT, { 'unacked', 'unacked_index' }) end

local at = 0
local function take()
  at = at + 1
  return ARGV[at]
end

-- Of each message that a runner has: the key of the list that it came from.
local function held_by(runner) return p .. 'held:' .. runner end

-- Names this database until it forgets everything: another name tells runners that nobody else can have what they run.
local function since(runner, now)
  call('SET', p .. 'since', runner .. ' ' .. now, 'NX')
  return call('GET', p .. 'since')
end

-- The message is no more.
local function forget(tag)
  call('HDEL', unacked, tag)
  call('ZREM', index, tag)
  call('HDEL', p .. 'keys', tag)
  call('HDEL', p .. 'failures', tag)
  call('HDEL', p .. 'rescues', tag)
end

