-- Whether the jobs exist that others are to come after, and in which state: for enqueue.lua, before anything is written.
local GONE = '-'
local parents, gone, missing = {}, {}, { 'missing' }

-- Ids of plain jobs that were seen to wait: those that were enqueued together are together.
local seen, inboxes = {}, nil
local AHEAD = 1000

local function waits_in_inbox(id)
  inboxes = inboxes or call('SMEMBERS', p .. 'inboxes')
  for _, queue in ipairs(seen[id] and {} or inboxes) do
    local inbox = p .. 'inbox:' .. queue
    if is_sound(inbox, 'list') then
      local place = place_in(inbox, id)
      for _, entry in ipairs(call('LRANGE', inbox, math.max(0, place - AHEAD), place + AROUND)) do
        seen[id_of(entry)] = true
      end
    end
    if seen[id] then break end
  end
  return seen[id]
end

local function state_of(id)
  local state = fields_of(id, 'state')[1]
  if state then return state end
  local found = find_plain(id)
  if found[1] then return found[1] == 'done' and COMPLETED or RUNNING end
  return waits_in_inbox(id) and AVAILABLE
end

-- Ids in one text, with a space between any two.
local function ids_in(text)
  local ids = {}
  for id in string.gmatch(text, '%S+') do ids[#ids + 1] = id end
  return ids
end

-- Those that are known to be there no more.
local function take_gone()
  for _, id in ipairs(ids_in(take())) do gone[id] = true end
end

local function look_up(ids)
  for _, id in ipairs(ids) do
    if not parents[id] then
      parents[id] = gone[id] and GONE or state_of(id) or nil
      if not parents[id] then missing[#missing + 1] = id end
    end
  end
end

