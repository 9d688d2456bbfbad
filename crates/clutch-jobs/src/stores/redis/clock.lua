-- By what leases and limits of rate are measured. Appended to the common part of all scripts.

local function digits(number) return string.format('%.0f', number) end

-- The server's clock in milliseconds, so that programs whose clocks differ agree about leases. What is added to it is zero
-- but in tests that let time pass.
local function clock(shift)
  local time = call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000) + shift
end

