-- Frees a lock of one owner id and gives it to the first in the queue. It serves the release
-- of a lease and the undo of an acquisition.
--
-- KEYS    as for acquire.lua; the fourth only with ARGV[5]. Only the first while the others may
--         be on another node of a Cluster: then this only frees the lock, and the rest expires
-- ARGV[1] owner id
-- ARGV[2] the lock's channel
-- ARGV[3] the last fencing token that was used; '-' and the number of tokens reserved if
--         none was; '' or nil to leave the one that was reserved
-- ARGV[4] the entry to take out of the queue; '' or nil
-- ARGV[5] for how long a tombstone refuses an attempt to acquire that may still be on its
--         way, in ms; nil if each attempt was answered
--
-- Returns 1 if it freed the lock of this owner, else 0. If the value at the key is no hash, it
-- returns an error after it has done everything else.

local freed = redis.pcall('HDEL', KEYS[1], ARGV[1])
if type(freed) == 'table' and not string.find(freed.err, 'WRONGTYPE', 1, true) then
  return freed
end
local free = freed == 1
if not KEYS[2] then
  if free then
    announce(ARGV[2])
  end
  return freed
end

-- Tokens in use must not run ahead of the server's clock, so unused ones of those reserved are
-- given back. pcall, because the grant below must be made even if this fails.
if free and ARGV[3] and ARGV[3] ~= '' then
  if string.sub(ARGV[3], 1, 1) ~= '-' then
    redis.pcall('SET', KEYS[3], ARGV[3], 'PX', tokenTTL(ARGV[3], TOKEN_LIMIT))
  elseif redis.pcall('EXISTS', KEYS[3]) == 1 then
    redis.pcall('INCRBY', KEYS[3], ARGV[3])
  end
end

if ARGV[4] and ARGV[4] ~= '' then
  -- Its process may be the one told to look whether Redisson has taken a lock that was left to it.
  free = call('ZREM', KEYS[2], ARGV[4]) == 1 and call('EXISTS', KEYS[1]) == 0 or free
end

if free then
  local queued = call('EXISTS', KEYS[2]) == 1
  local heard = not queued and announce(ARGV[2])
  local redisson = (queued or heard) and redissonWaiters(ARGV[2]) or 0
  -- Redisson's clients are in no queue. Each of them gets as many turns as one process of ours,
  -- counting the one that frees the lock, which is likely to come back.
  local toRedisson = redisson > 0 and now() % (call('ZCARD', KEYS[2]) + 1 + redisson) < redisson
  if toRedisson then
    redis.pcall('SET', strangersOf(KEYS[2]), '', 'PX', LEFT_TO_REDISSON)
  end
  if queued and (toRedisson or not grant(KEYS[1], KEYS[2], KEYS[3], '', redisson)) then
    announce(ARGV[2])
  end
  local id = toRedisson and string.match(call('ZRANGE', KEYS[2], 0, 0)[1] or '', '^%S+')
  if id then
    tell(id, 'look ' .. id .. ' ' .. KEYS[1])
  end
end

if ARGV[5] then
  local tombstone = redis.pcall('SET', KEYS[4], '', 'PX', ARGV[5])
  if tombstone.err then
    return tombstone
  end
end
return freed
