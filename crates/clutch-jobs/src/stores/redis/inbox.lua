-- Where a plain job waits. Appended to common.lua by the scripts that need it.

local AROUND = 50

-- The place at which the entry of an id belongs: the entries are in the order of their ids but for programs whose clocks
-- differ.
local function place_in(inbox, id)
  local first, last = 0, call('LLEN', inbox) - 1
  while first <= last do
    local middle = math.floor((first + last) / 2)
    local found = id_of(call('LINDEX', inbox, middle))
    if found == id then return middle end
    -- The newest are first.
    if found > id then first = middle + 1 else last = middle - 1 end
  end
  return first
end

