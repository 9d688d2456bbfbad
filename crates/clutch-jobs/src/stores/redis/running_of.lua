local function running_of(runner)
  local key = p .. 'running:' .. runner
  return is_sound(key, 'hash') and call('HLEN', key) or 0
end
