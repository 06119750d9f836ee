-- Frees a lock of one owner id and calls the next in the queue. It serves the
-- release of a lease and the undoing of an acquire whose outcome is unknown.
--
-- KEYS    as for acquire.lua
-- ARGV[1] owner id
-- ARGV[2] the last fencing token that was used, or '' to leave the reserved one
-- ARGV[3] process number if the process is to leave the queue, or ''
-- ARGV[4] how long a turn lasts, in ms
-- ARGV[5] the lock's channel
-- ARGV[6] how long an attempt to acquire may still be on its way, in ms: so
--         long a tombstone refuses it; '0' if each attempt was answered
--
-- Returns 1 if the lock was this owner's and is free now, else 0.

local freed = redis.call('HDEL', KEYS[1], ARGV[1])
local free = redis.call('EXISTS', KEYS[1]) == 0

if freed == 1 and ARGV[2] ~= '' then
  -- pcall: what was reserved may stay, only the notice below must not fail.
  redis.pcall('SET', KEYS[2], ARGV[2], 'PX', 1000)
end

local turn = false
if ARGV[3] ~= '' then
  redis.call('ZREM', KEYS[3], ARGV[3])
  turn = redis.call('GET', KEYS[4])
  if turn == ARGV[3] then
    redis.call('DEL', KEYS[4])
    turn = true
  end
end

if free and (freed == 1 or turn == true) then
  -- Whoever has the number below may go on; lockgen's other waiters take the
  -- '0' after it as meant for Redisson's, which know no queue. A refusal to
  -- publish (ACL) must not fail the release: waiters poll as well.
  local head = redis.call('ZRANGE', KEYS[3], 0, 0)[1]
  if head then
    redis.call('SET', KEYS[4], head, 'PX', ARGV[4])
    redis.call('ZREM', KEYS[3], head)
    redis.pcall('PUBLISH', ARGV[5], head)
  end
  redis.pcall('PUBLISH', ARGV[5], '0')
end

if ARGV[6] ~= '0' then
  redis.call('SET', KEYS[5], '1', 'PX', ARGV[6])
end
return freed
