-- Takes a lock, or says for how long it is not to be had. Idempotent for one
-- owner id: it is sent again when a reply was lost.
--
-- KEYS[1] the lock, as Redisson's RLock: hash, field = owner id, value = 1
-- KEYS[2] the highest fencing token that is reserved or was used
-- KEYS[3] the queue: zset of process numbers, score = server time of arrival
--         in µs, or, of the one process whose turn it is while the lock is
--         free, minus the server time in ms when its turn ends
-- KEYS[4] the tombstone of this acquisition
-- ARGV[1] owner id
-- ARGV[2] lease in ms
-- ARGV[3] how many fencing tokens the lease reserves
-- ARGV[4] how long they are remembered, in ms
-- ARGV[5] process number
-- ARGV[6] '1' to queue when the lock is not to be had
-- ARGV[7] the lock's channel
--
-- TURN and QUEUE, in ms, are put in by script.go.
--
-- Returns {1, first token} when taken, {0, ms} when another holds it for so
-- long (0: unknown), {-1, 0} when this acquisition was undone before.

local call = redis.call
local time = call('TIME')
local micros = time[1] * 1000000 + time[2]

local known = call('EXISTS', KEYS[1], KEYS[3], KEYS[4]) > 0
local again = known and call('HEXISTS', KEYS[1], ARGV[1]) == 1
if known and not again then
  if call('EXISTS', KEYS[4]) == 1 then
    return {-1, 0}
  end
  local left = call('PTTL', KEYS[1])
  if left == -2 then -- free: whose turn is it?
    local now = math.floor(micros / 1000)
    local head = call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')
    if head[1] and tonumber(head[2]) < 0 and -head[2] <= now then -- it did not come
      call('ZREM', KEYS[3], head[1])
      head = call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')
    end
    if head[1] == ARGV[5] then
      call('ZREM', KEYS[3], ARGV[5])
    elseif head[1] then
      left = -head[2] - now
      if left < 0 then -- the last lease ran out, so nobody has called it
        left = TURN
        call('ZADD', KEYS[3], 'XX', -(now + left), head[1])
        redis.pcall('PUBLISH', ARGV[7], head[1])
        redis.pcall('PUBLISH', ARGV[7], '0') -- as release.lua does
      end
    end
  end
  if left ~= -2 then
    if ARGV[6] == '1' then
      call('ZADD', KEYS[3], 'NX', micros, ARGV[5])
      call('PEXPIRE', KEYS[3], QUEUE)
    end
    if left == -1 then -- without an expiry, so not ours
      return {0, 0}
    end
    return {0, math.max(left, 1)}
  end
end

-- Whatever refuses from here on (ACL, memory) leaves no lock behind: PEXPIRE is
-- tried first where it changes nothing, so that a lock is never left without an
-- expiry; and not before SET, because after a first write memory is no objection.
local first = micros * 4
local last = call('SET', KEYS[2], first + ARGV[3] - 1, 'PX', ARGV[4], 'GET')
if last and tonumber(last) >= first then -- the clock went back, or tokens are reserved ahead of it
  first = last + 1
  if again then -- the block at its end is this acquisition's own, and unused
    first = first - ARGV[3]
  end
  call('SET', KEYS[2], first + ARGV[3] - 1, 'PX', ARGV[4])
end
call('PEXPIRE', KEYS[1], ARGV[2])
call('HSET', KEYS[1], ARGV[1], 1)
call('PEXPIRE', KEYS[1], ARGV[2])
return {1, first}
