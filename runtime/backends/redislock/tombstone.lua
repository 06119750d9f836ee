-- Leaves the tombstone of an acquisition by its own key alone: see releaseone.lua.
--
-- KEYS[1] the tombstone
-- ARGV[1] how long an attempt to acquire may still be on its way, in ms

redis.call('SET', KEYS[1], '', 'PX', ARGV[1])
return 1
