-- How a job that was running goes on, or ends. Appended to common.lua by the scripts that need it.

-- The keys of all that an end can change; asked for first.
local ENDING_KINDS = {
  'all', 'broken', 'cancelling', 'counts', 'delete:3', 'delete:4', 'delete:5', 'done', 'ended:3', 'ended:4', 'ended:5',
  'holding', 'inboxes', 'orphaned', 'parents', 'passing', 'renewals', 'scheduled', 'settings', 'unique',
}

-- By key: what is written once at the end.
local added, removed = {}, {}

local function flush_endings()
  for key, list in pairs(added) do many('ZADD', key, list) end
  for key, list in pairs(removed) do many('SREM', key, list) end
end

local function is_cancelling(id)
  return call('SISMEMBER', p .. 'cancelling', id) == 1
end

-- It is finished: the fields of its hash are written by the caller. Without a time when it is deleted, whoever looks after
-- the store decides that.
local function finished(id, state, queue, key, unique, now, delete_at)
  push(added, p .. (delete_at and 'delete:' or 'ended:') .. state, delete_at or now, id)
  count(state, queue, 1)
  note_end(id, state)
  if key then leave_key(id, key) end
  if unique then call('HDEL', p .. 'unique', unique) end
end

local ERRORS_MAX = 25 -- job.rs

local function add_error(id, text)
  local errors = p .. 'errors:' .. id
  if not is_sound(errors, 'list') then return end
  if call('RPUSH', errors, text) > ERRORS_MAX then call('LTRIM', errors, -ERRORS_MAX, -1) end
end

