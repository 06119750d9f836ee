-- Takes a lock, or says for how long it is not to be had. Idempotent for one
-- owner id, so that it may be sent again when a reply was lost.
--
-- KEYS[1] the lock, as Redisson's RLock: hash, field = owner id, value = 1
-- KEYS[2] the highest fencing token that is reserved or was used
-- KEYS[3] the queue: zset of process numbers, score = server time of arrival
-- KEYS[4] the turn: the process that may take the lock while it is free
-- KEYS[5] the tombstone of this acquisition
-- ARGV[1] owner id
-- ARGV[2] lease in ms
-- ARGV[3] how many fencing tokens the lease reserves
-- ARGV[4] process number
-- ARGV[5] '1' to queue when the lock is not to be had
-- ARGV[6] how long a turn lasts, in ms
-- ARGV[7] how long a queue outlives its last arrival, in ms
-- ARGV[8] the lock's channel
--
-- Returns {1, first token} when taken, {0, ms} when held by another for so
-- long (0: unknown), {-1, 0} when the acquisition was undone before.

local time = redis.call('TIME')
local micros = time[1] * 1000000 + time[2]

-- Each write is ordered so that a refusal (ACL, memory, an impossible ttl)
-- leaves nothing behind: PEXPIRE goes first, where it changes nothing, because
-- after it has been let through once the lock can't be left without an expiry.
local function take(first)
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  redis.call('SET', KEYS[2], string.format('%.0f', first + ARGV[3] - 1), 'PX', ARGV[2] + 1000)
  redis.call('HSET', KEYS[1], ARGV[1], 1)
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return {1, first}
end

local function nextToken()
  local last = tonumber(redis.call('GET', KEYS[2]) or '0')
  return math.max(last + 1, micros * 4)
end

if redis.call('EXISTS', KEYS[1], KEYS[3], KEYS[4], KEYS[5]) == 0 then
  return take(nextToken())
end

if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then -- sent before, and its reply lost
  local last = tonumber(redis.call('GET', KEYS[2]) or '0')
  if last == 0 then
    return take(micros * 4)
  end
  return take(last - ARGV[3] + 1)
end

if redis.call('EXISTS', KEYS[5]) == 1 then
  return {-1, 0}
end

local left = redis.call('PTTL', KEYS[1])
if left == -2 then
  local turn = redis.call('GET', KEYS[4])
  if not turn then
    -- The last lease ran out, so nobody called the next in the queue.
    local head = redis.call('ZRANGE', KEYS[3], 0, 0)[1]
    if head and head ~= ARGV[4] then
      redis.call('SET', KEYS[4], head, 'PX', ARGV[6])
      redis.call('ZREM', KEYS[3], head)
      redis.pcall('PUBLISH', ARGV[8], head)
      turn = head
    end
  end
  if not turn or turn == ARGV[4] then
    local granted = take(nextToken())
    redis.call('DEL', KEYS[4])
    redis.call('ZREM', KEYS[3], ARGV[4])
    return granted
  end
  left = redis.call('PTTL', KEYS[4])
end

if ARGV[5] == '1' then
  redis.call('ZADD', KEYS[3], 'NX', micros, ARGV[4])
  redis.call('PEXPIRE', KEYS[3], ARGV[7])
end
return {0, math.max(left, 0)}
