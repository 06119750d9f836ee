-- Takes a lock, or says for how long it is not to be had. Idempotent for one
-- owner id: it is sent again when a reply was lost. A lock that is free and
-- that no one waits for takes five commands; what is not needed then is not
-- even passed, because the server makes a Lua string of every argument.
--
-- KEYS[1] the lock, as Redisson's RLock: hash, field = owner id, value = 1
-- KEYS[2] the queue: zset of
--           process numbers, score = server time of arrival in µs, or, of the
--           one process whose turn it is while the lock is free, minus the
--           server time in ms when its turn ends;
--           owner ids that were undone (tombstones), score = GRAVES + the
--           server time in ms when they are forgotten, above all of those
-- KEYS[3] the highest fencing token that is reserved or was used
-- ARGV[1] owner id, a UUID that stands for the process, ':' and a number
-- ARGV[2] lease in ms
-- ARGV[3] how many fencing tokens the lease reserves; nil: 1
-- ARGV[4] how long they are remembered, in ms; nil: LONE
-- ARGV[5] nil, or what is not as usual: 'try' not to queue when the lock is not
--         to be had, 'probe' to find out first whether it can be given an expiry,
--         or both words
-- ARGV[6] nil, or that the lock may be given to this acquisition without another
--         question: the channel on which it hears of it, and the number of the
--         offer
--
-- The offers are kept beside the queue: a hash, field = process number, value =
-- what release.lua needs. Its name is made here, of the queue's, so that a lock
-- that no one waits for need not pass it; a Cluster has none.
--
-- GRAVES, LONE, TURN, QUEUE and GRANTS are put in by script.go.
--
-- Returns the first token when taken; minus the ms for which another holds
-- it; 'undone' when this acquisition was undone before.

local call = redis.call
local time = call('TIME')
local micros = time[1] * 1000000 + time[2]

local again = false
if call('EXISTS', KEYS[1], KEYS[2]) > 0 then
  again = call('HEXISTS', KEYS[1], ARGV[1]) == 1
  if not again and call('ZSCORE', KEYS[2], ARGV[1]) then
    return redis.status_reply('undone')
  end
  local left = again and -2 or call('PTTL', KEYS[1])
  local process = string.format('%.0f', tonumber(string.sub(ARGV[1], 1, 8) .. string.sub(ARGV[1], 10, 13), 16) + 2 ^ 48)
  local offers = GRANTS and 'lockgen:offer:' .. string.sub(KEYS[2], 15)
  if left == -2 and not again then -- free: whose turn is it?
    local now = math.floor(micros / 1000)
    local head = call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
    if head[1] and tonumber(head[2]) < 0 and -head[2] <= now then -- it did not come
      call('ZREM', KEYS[2], head[1])
      if offers then
        redis.pcall('HDEL', offers, head[1])
      end
      head = call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
    end
    if head[1] == process then
      call('ZREM', KEYS[2], process)
      if offers then
        redis.pcall('HDEL', offers, process)
      end
    elseif head[1] and tonumber(head[2]) < GRAVES then
      left = -head[2] - now
      if left < 0 or left > TURN then
        -- The last lease ran out, so nobody has called it; or the clock went back since.
        left = TURN
        call('ZADD', KEYS[2], 'XX', -(now + left), head[1])
        local channel = 'redisson_lock__channel:' .. (string.find(KEYS[1], '{', 1, true) and KEYS[1] or '{' .. KEYS[1] .. '}')
        redis.pcall('PUBLISH', channel, head[1])
        redis.pcall('PUBLISH', channel, '0') -- as release.lua does
      end
    end
  end
  if left == -1 and not again then
    return redis.error_reply('CONFLICT a hash without an expiry is at the key, which is no lock')
  end
  if left ~= -2 then
    if not (ARGV[5] and string.find(ARGV[5], 'try', 1, true)) then
      call('ZADD', KEYS[2], 'NX', micros, process)
      if call('PTTL', KEYS[2]) < QUEUE then -- it holds no tombstone for longer
        local expires = redis.pcall('PEXPIRE', KEYS[2], QUEUE)
        if expires ~= 1 then -- a queue without an expiry would stay as well
          call('ZREM', KEYS[2], process)
          return expires
        end
      end
      if offers and ARGV[6] then
        redis.pcall('HSET', offers, process, string.format('%s %s %s %s %.0f %s', ARGV[1], ARGV[2], ARGV[3], ARGV[4], micros, ARGV[6]))
        if redis.pcall('PEXPIRE', offers, QUEUE) ~= 1 then
          redis.pcall('HDEL', offers, process)
        end
      elseif offers then -- that of an acquisition before this one counts no more
        redis.pcall('HDEL', offers, process)
      end
    end
    return -math.max(left, 1)
  end
end

-- Whatever refuses from here on (ACL, memory) leaves no lock behind.
local first = micros * 4
local n = ARGV[3] or 1
local last = call('SET', KEYS[3], first + n - 1, 'PX', ARGV[4] or LONE, 'GET')
if last and tonumber(last) >= first then -- the clock went back, or tokens are reserved ahead of it
  first = last + 1
  if again then -- the block at its end is this acquisition's own, and unused
    first = first - n
  end
  call('SET', KEYS[3], first + n - 1, 'PX', ARGV[4] or LONE)
end
if ARGV[5] and string.find(ARGV[5], 'probe', 1, true) then
  -- Not before SET: after a first write, memory is no objection any more.
  call('PEXPIRE', KEYS[1], ARGV[2])
end
call('HSET', KEYS[1], ARGV[1], '1')
local expires = redis.pcall('PEXPIRE', KEYS[1], ARGV[2])
if expires ~= 1 then -- scripts do not roll back, and a lock without an expiry would stay
  call('HDEL', KEYS[1], ARGV[1])
  return expires
end
return first
