-- Renews a lease. It never makes a lock, and never shortens a lease.
--
-- KEYS[1] the lock
-- KEYS[2] the highest fencing token; nil while it may be on another node of a Cluster
-- ARGV[1] owner id
-- ARGV[2] lease in ms
--
-- Returns 1 if renewed, 0 if the lock is not this owner's.

local owned = redis.pcall('HEXISTS', KEYS[1], ARGV[1])
if type(owned) == 'table' and not string.find(owned.err, 'WRONGTYPE', 1, true) then
  return owned -- a user without the right to look learns nothing of the lock
end
if owned ~= 1 then
  -- A server that has become a replica, and has no data of its primary yet, must not say that
  -- the lock is lost. It refuses each write, even one that deletes nothing.
  local refusal = redis.pcall('HDEL', KEYS[1], ARGV[1])
  if type(refusal) == 'table' and string.find(refusal.err, 'READONLY', 1, true) then
    return refusal
  end
  return 0
end
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
if KEYS[2] and redis.call('PTTL', KEYS[2]) < ARGV[2] + TOKEN_LIMIT then -- it is longer if the token was raised
  redis.call('PEXPIRE', KEYS[2], ARGV[2] + TOKEN_LIMIT)
end
return 1
