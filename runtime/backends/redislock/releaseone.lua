-- Frees a lock of one owner id by the lock's own key alone: what release.lua does
-- cannot be done in a Redis Cluster while the lock's keys are on their way, some
-- here and some there. The rest of it expires.
--
-- KEYS[1] the lock
-- ARGV[1] owner id
-- ARGV[2] the lock's channel
--
-- Returns 1 if the lock was this owner's and is free now, else 0.

local freed = call('HDEL', KEYS[1], ARGV[1])
if freed == 1 then
  announce(ARGV[2])
end
return freed
