-- Leaves the tombstone of an acquisition by the queue's own key alone: see
-- releaseone.lua.
--
-- KEYS[1] the queue
-- ARGV[1] owner id
-- ARGV[2] how long an attempt to acquire may still be on its way, in ms
--
-- Returns 1.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZADD', KEYS[1], GRAVES + now + ARGV[2], ARGV[1])
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 1
