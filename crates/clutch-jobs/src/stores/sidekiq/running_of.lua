local function running_of(runner)
  local count = 0
  for _, queue in ipairs(call('SMEMBERS', p .. 'queues')) do
    local backup = backup_of(runner, queue)
    count = count + (is_sound(backup, 'list') and call('LLEN', backup) or 0)
  end
  return count
end
