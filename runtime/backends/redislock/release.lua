-- Frees a lock of one owner id and calls the next in the queue. It serves the
-- release of a lease and the undoing of an acquire whose outcome is unknown.
--
-- KEYS    as for acquire.lua; the third only with ARGV[3]
-- ARGV[1] owner id
-- ARGV[2] the lock's channel
-- ARGV[3] the last fencing token that was used; '-' and the number of tokens
--         reserved if none was; '' or nil to leave the one that was reserved
-- ARGV[4] process number if the process is to leave the queue, '' or nil
-- ARGV[5] how long an attempt to acquire may still be on its way, in ms: so
--         long a tombstone refuses it; nil if each attempt was answered
--
-- GRAVES and TURN are put in by script.go.
--
-- Returns 1 if the lock was this owner's and is free now, else 0.

local call = redis.call
local freed = call('HDEL', KEYS[1], ARGV[1])
local free = freed == 1

if ARGV[3] then
  -- Tokens in use must not run ahead of the server's clock, so what was reserved
  -- and not used is given back. pcall: the notice below must not fail.
  if free and string.sub(ARGV[3], 1, 1) == '-' then
    if redis.pcall('EXISTS', KEYS[3]) == 1 then
      redis.pcall('INCRBY', KEYS[3], ARGV[3])
    end
  elseif free and ARGV[3] ~= '' then
    redis.pcall('SET', KEYS[3], ARGV[3], 'PX', 1000)
  end
  if ARGV[4] and ARGV[4] ~= '' then
    local score = call('ZSCORE', KEYS[2], ARGV[4])
    call('ZREM', KEYS[2], ARGV[4])
    if score and tonumber(score) < 0 then
      free = call('EXISTS', KEYS[1]) == 0
    end
  end
end

if free then
  -- The process with the number below may go on; our other waiters take the
  -- '0' behind it as meant for Redisson's, which know no queue. A refusal to
  -- publish (ACL) must not fail the release: waiters poll as well.
  local head = call('ZRANGE', KEYS[2], '0', '0')[1]
  if head and not string.find(head, ':', 1, true) then -- no tombstone
    local time = call('TIME')
    local now = time[1] * 1000 + math.floor(time[2] / 1000)
    call('ZADD', KEYS[2], 'XX', -(now + TURN), head)
    redis.pcall('PUBLISH', ARGV[2], head)
  end
  redis.pcall('PUBLISH', ARGV[2], '0')
end

if ARGV[5] then
  local time = call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  call('ZREMRANGEBYSCORE', KEYS[2], GRAVES, GRAVES + now)
  call('ZADD', KEYS[2], GRAVES + now + ARGV[5], ARGV[1])
  if call('PTTL', KEYS[2]) < tonumber(ARGV[5]) then
    call('PEXPIRE', KEYS[2], ARGV[5])
  end
end
return freed
