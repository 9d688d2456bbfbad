-- By what leases and limits of rate are measured. Appended to the common part of all scripts.

local function digits(number) return string.format('%.0f', number) end

-- The server's clock in milliseconds, so that programs whose clocks differ agree about leases. What is added to it is
-- zero but in tests that let time pass.
local function clock(shift)
  local time = call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000) + shift
end


-- Of who wants jobs: whether it has a lease among these. Its first round takes one; a later one whose lease has lapsed
-- is late.
local function has_lease(leases, runner, number, lease, shift)
  if call('ZSCORE', p .. leases, runner) then return true end
  if tonumber(number) > 1 then return false end
  call('ZADD', p .. leases, digits(clock(shift) + lease), runner)
  call('SREM', p .. 'orphaned', runner)
  return true
end
