-- Renews one lease by the lock's own key alone: see releaseone.lua.
--
-- KEYS[1] the lock
-- ARGV[1] owner id
-- ARGV[2] lease in ms
--
-- Returns {1} if renewed, {0} if the lock is not this owner's, as renew.lua does.

if redis.pcall('HEXISTS', KEYS[1], ARGV[1]) ~= 1 then
  return {0}
end
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return {1}
