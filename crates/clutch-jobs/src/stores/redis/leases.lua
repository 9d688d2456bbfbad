-- Leases, of both formats: of each runner a counter that its holder raises, and how long it may stand (milliseconds). No
-- time is kept. Appended to the common part of all scripts.
local renewals = p .. 'renewals'

local function digits(number) return string.format('%.0f', number) end

-- Nothing where somebody has damaged it: then it is none.
local function counter_of(lease)
  local counter, length = string.match(lease or '', '^(%d+) (%d+)$')
  if counter and #counter <= 15 and #length <= 15 then return counter end
end

local function take_lease(runner, length)
  if call('HSETNX', renewals, runner, '0 ' .. length) == 1 then call('SREM', p .. 'orphaned', runner) end
end

-- Of who wants jobs: its first round takes a lease, where no renewal came before; a later one whose lease has lapsed is
-- late.
local function has_lease(runner, number, length)
  if call('HEXISTS', renewals, runner) == 1 then return true end
  if tonumber(number) > 1 then return false end
  take_lease(runner, length)
  return true
end

-- Whether it had a lease to renew. What it has left behind without one is for the next look to rescue.
local function raise(runner, length)
  local counter = counter_of(call('HGET', renewals, runner))
  if not counter then
    call('SADD', p .. 'orphaned', runner)
    return false
  end
  call('HSET', renewals, runner, digits(counter + 1) .. ' ' .. length)
  return true
end

-- ARGV: how many leases somebody has seen to have lapsed; of each its holder and counter. Ends those that still are as
-- they were seen, and, if `only` is given, this holder's. Returns the holders.
local function end_leases(only)
  local ended = {}
  for _ = 1, tonumber(take()) do
    local holder, seen = take(), take()
    if (not only or holder == only) and counter_of(call('HGET', renewals, holder)) == seen then
      call('HDEL', renewals, holder)
      ended[#ended + 1] = holder
    end
  end
  return ended
end

-- Of all leases: holder, counter and length. Those that are none go.
local function all_leases()
  local found, told = call('HGETALL', renewals), {}
  for nr = 1, #found, 2 do
    if counter_of(found[nr + 1]) then
      told[#told + 1], told[#told + 2] = found[nr], found[nr + 1]
    else
      call('HDEL', renewals, found[nr])
      call('SADD', p .. 'orphaned', found[nr])
    end
  end
  return told
end

