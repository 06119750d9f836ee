-- Frees a lock of one owner id, and gives it to the next in the queue or calls
-- it. It serves the release of a lease and the undoing of an acquire whose outcome
-- is unknown.
--
-- KEYS    as for acquire.lua; the third only with ARGV[3] or ARGV[6]
-- ARGV[1] owner id
-- ARGV[2] the lock's channel
-- ARGV[3] the last fencing token that was used; '-' and the number of tokens
--         reserved if none was; '' or nil to leave the one that was reserved
-- ARGV[4] process number if the process is to leave the queue, where no later
--         acquisition of its has made an offer; '' or nil
-- ARGV[5] how long an attempt to acquire may still be on its way, in ms: so
--         long a tombstone refuses it; '' or nil if each attempt was answered
-- ARGV[6] '1' if a connection of the caller listens on the lock's channel, and no
--         offer was made on it
-- ARGV[7] number of the process whose offer, made with this owner id, counts no
--         more, or nil
--
-- GRAVES, LONE, TURN, FRESH and GRANTS are put in by script.go. The names of offers and
-- tokens are made here, as acquire.lua says.
--
-- Returns 1 if the lock was this owner's and is not any more, else 0.

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
    redis.pcall('SET', KEYS[3], ARGV[3], 'PX', LONE)
  end
  if ARGV[4] and ARGV[4] ~= '' then
    -- The offer goes with the place, as nobody would remove it once its process has
    -- the lock: one of Redisson's clients that listens would be taken for it. Both
    -- stay if the offer is that of a later acquisition, which waits there.
    local offers = GRANTS and 'lockgen:offer:' .. string.sub(KEYS[2], 15)
    local offer = offers and redis.pcall('HGET', offers, ARGV[4])
    local n = type(offer) == 'string' and string.match(offer, '^[^ ]+:(%d+) ')
    if not n or tonumber(n) <= tonumber(string.match(ARGV[1], ':(%d+)$')) then
      local score = call('ZSCORE', KEYS[2], ARGV[4])
      call('ZREM', KEYS[2], ARGV[4])
      if offers then
        redis.pcall('HDEL', offers, ARGV[4])
      end
      if score and tonumber(score) < 0 then
        free = call('EXISTS', KEYS[1]) == 0
      end
    end
  end
end

if ARGV[7] then
  local offers = 'lockgen:offer:' .. string.sub(KEYS[2], 15)
  local offer = redis.pcall('HGET', offers, ARGV[7])
  if type(offer) == 'string' and string.find(offer, ARGV[1] .. ' ', 1, true) == 1 then
    redis.pcall('HDEL', offers, ARGV[7])
  end
end

if free then
  -- EXISTS first, which takes half the time: most locks are waited for by nobody.
  local head = call('EXISTS', KEYS[2]) == 1 and call('ZRANGE', KEYS[2], '0', '0')[1]
  local given = false
  if head and not string.find(head, ':', 1, true) then -- no tombstone
    local time = call('TIME')
    local micros = time[1] * 1000000 + time[2]
    local tag = string.sub(KEYS[2], 15) -- behind 'lockgen:queue:'
    local offers = GRANTS and 'lockgen:offer:' .. tag
    local offer = offers and redis.pcall('HGET', offers, head)
    if type(offer) == 'string' then
      local id, ttl, n, kept, made, to, number = string.match(offer, '^(%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+)$')
      local age = micros - made
      -- Redisson's clients know no queue and would wait in vain if the lock went
      -- from one of ours to the next: whoever listens here and has made no offer
      -- may be one of them.
      local here = redis.pcall('PUBSUB', 'NUMSUB', ARGV[2])[2]
      local known = redis.pcall('HLEN', offers)
      if age >= 0 and age <= FRESH and here and type(known) == 'number' and here <= known + (ARGV[6] == '1' and 1 or 0) then
        local token = 'lockgen:token:' .. tag
        local first = micros * 4
        local last = redis.pcall('SET', token, first + n - 1, 'PX', kept, 'GET')
        if type(last) == 'string' and tonumber(last) >= first then
          first = last + 1
          last = redis.pcall('SET', token, first + n - 1, 'PX', kept, 'GET')
        end
        if type(last) ~= 'table' then
          call('HSET', KEYS[1], id, '1')
          -- Who has died hears nothing, and gets nothing.
          given = redis.pcall('PEXPIRE', KEYS[1], math.min(ttl, TURN)) == 1
            and redis.pcall('PUBLISH', to, string.format('%s %.0f %.0f', number, first, age)) == 1
          if given then
            call('ZREM', KEYS[2], head)
            call('HDEL', offers, head)
            if here > 1 then -- the others look after it in time
              redis.pcall('PUBLISH', ARGV[2], '-' .. head)
            end
          else
            call('HDEL', KEYS[1], id)
            redis.pcall('INCRBY', token, '-' .. n) -- as those that nobody used
          end
        end
      end
    end
    if not given then
      -- The process with the number below may go on; our other waiters take the
      -- '0' behind it as meant for Redisson's. A refusal to publish (ACL) must not
      -- fail the release: waiters poll as well.
      call('ZADD', KEYS[2], 'XX', -(math.floor(micros / 1000) + TURN), head)
      redis.pcall('PUBLISH', ARGV[2], head)
    end
  end
  if not given then
    redis.pcall('PUBLISH', ARGV[2], '0')
  end
end

if ARGV[5] and ARGV[5] ~= '' then
  local time = call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  call('ZREMRANGEBYSCORE', KEYS[2], GRAVES, GRAVES + now)
  call('ZADD', KEYS[2], GRAVES + now + ARGV[5], ARGV[1])
  if call('PTTL', KEYS[2]) < tonumber(ARGV[5]) then
    local expires = redis.pcall('PEXPIRE', KEYS[2], ARGV[5])
    if expires ~= 1 then -- a queue without an expiry would stay
      call('ZREM', KEYS[2], ARGV[1])
      return expires
    end
  end
end
return freed
