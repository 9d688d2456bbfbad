-- ARGV: runner, the number of the round, the length of its lease, its node, the time (seconds), how many it wants; how many lists,
-- and of each its key and its queue; then of each message that ended: its tag, what becomes of it, and a text.
-- Returns the places of those that were not this runner's any more, then of each claimed message: its tag, its list,
-- 'new' or 'known', its text, why it failed, how often it was rescued; whether it has a lease, without which it claims
-- nothing; what is left alone since its key is damaged; how many were no messages; what the node has told its workers;
-- whether any task is revoked; the name of the database, to one that has a lease.
local MALFORMED_MAX = 1000
local MALFORMED_BYTES_MAX = 1048576
local runner, number, length, node, now = take(), take(), take(), take(), take()
local limit = tonumber(take())
local keys, queues = {}, {}
for nr = 1, tonumber(take()) do keys[nr], queues[nr] = take(), take() end
local held = held_by(runner)
local problem = refused('cancelling', 'due', 'failing', 'failures', 'keys', 'malformed', 'orphaned', 'renewals', 'rescues',
  'scheduled', 'since') or format_refused() or refusal('', { [held] = 'hash' }, { held })
if problem then return problem end

local function set_aside(text)
  call('LPUSH', p .. 'malformed', string.sub(text, 1, MALFORMED_BYTES_MAX))
  call('LTRIM', p .. 'malformed', 0, MALFORMED_MAX - 1)
end

-- 'ack'; 'first' and 'last': back into its list, as this text; 'aside': kept, as it was sent; 'fail': others tell why, with
-- this text; 'later': at this time (seconds).
local function finish(tag, key, what, text)
  call('SREM', p .. 'cancelling', tag)
  if what == 'fail' then
    call('HSET', p .. 'keys', tag, key)
    call('HSET', p .. 'failures', tag, text)
    call('RPUSH', p .. 'failing', tag)
  elseif what == 'later' then
    call('HSET', p .. 'keys', tag, key)
    call('ZADD', p .. 'scheduled', text, tag)
    -- Nobody takes it for abandoned before it is due.
    call('ZADD', index, text, tag)
  else
    local kept = call('HGET', unacked, tag)
    forget(tag)
    if what == 'first' then
      call('RPUSH', key, text)
    elseif what == 'last' then
      call('LPUSH', key, text)
    elseif what == 'aside' then
      set_aside(string.match(kept, '^%[(.*),"[^"]*","[^"]*"%]$') or kept)
    end
  end
end

local nr, lost, told, malformed = 0, {}, {}, 0
while at < #ARGV do
  local tag, what, text = take(), take(), take()
  local key = call('HGET', held, tag)
  if key then call('HDEL', held, tag) end
  if key and call('HEXISTS', unacked, tag) == 1 and (what == 'ack' or is_sound(key, 'list')) then
    finish(tag, key, what, text)
  else
    lost[#lost + 1] = nr
  end
  nr = nr + 1
end

local count = 0
local function tell(tag, key, kind, text)
  call('HSET', held, tag, key)
  count = count + 1
  told[#told + 1] = { tag, key, kind, text, call('HGET', p .. 'failures', tag) or '', call('HGET', p .. 'rescues', tag) or '0' }
end

-- What waits outside of its queue: it is there already.
local function claim_known(name)
  while count < limit do
    local tag = call('LPOP', p .. name)
    if not tag then return end
    local text, key = call('HGET', unacked, tag), call('HGET', p .. 'keys', tag)
    if text and key then
      call('ZADD', index, 'XX', now, tag)
      tell(tag, key, 'known', text)
    else
      forget(tag)
    end
  end
end

-- A message that has none and says which task it is gets one: a worker tells whoever waits what is wrong with it.
local made = 0
local function tag_of(text)
  local ok, message = pcall(cjson.decode, text)
  if not ok or type(message) ~= 'table' then return end
  local properties, headers = message.properties, message.headers
  if type(properties) == 'table' and type(properties.delivery_info) == 'table' then
    local tag = properties.delivery_tag
    if type(tag) == 'string' and #tag > 0 then return tag end
  end
  if type(headers) ~= 'table' or type(headers.id) ~= 'string' then return end
  made = made + 1
  return 'clutch:' .. redis.sha1hex(runner .. ' ' .. number .. ' ' .. made)
end

local function claim_new(key, queue)
  while count < limit do
    local text = call('RPOP', key)
    if not text then return end
    local tag = tag_of(text)
    if tag then
      call('ZADD', index, now, tag)
      call('HSET', unacked, tag, '[' .. text .. ',"",' .. cjson.encode(queue) .. ']')
      tell(tag, key, 'new', text)
    else
      malformed = malformed + 1
      set_aside(text)
    end
  end
end

local is_leased = limit == 0 or has_lease(runner, number, length)
if is_leased and limit > 0 then
  claim_known('failing')
  claim_known('due')
  for nr, key in ipairs(keys) do
    if count >= limit then break end
    if is_sound(key, 'list') then claim_new(key, queues[nr]) end
  end
end
return {
  lost, told, is_leased and 1 or 0, damage, malformed, try('GET', p .. 'settings:' .. node) or '',
  call('EXISTS', p .. 'revoked'), call('HEXISTS', renewals, runner) == 1 and since(runner, now) or '',
}
