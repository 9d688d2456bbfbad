-- How many messages a runner has.
local function running_of(runner) return is_sound(held_by(runner), 'hash') and call('HLEN', held_by(runner)) or 0 end
