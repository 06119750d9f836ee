-- Takes a lock, or enters its queue. It may be sent again when a reply was lost.
--
-- KEYS[1] the lock, as Redisson's RLock: hash, field = owner id, value = 1
-- KEYS[2] the queue: zset of entries (see grant.lua), score = since when its process waits, in µs
-- KEYS[3] the highest fencing token that is reserved or was used
-- KEYS[4] the tombstone of this acquisition, which exists once it was undone
-- ARGV[1] owner id
-- ARGV[2] lease in ms
-- ARGV[3] how many fencing tokens the lease reserves; nil: 1
-- ARGV[4] the caller's entry in the queue; nil not to queue
-- ARGV[5] since when its process waits, by the server's time; nil: since now
--
-- Returns the first token if it took the lock; 'undone'; or, if the lock is held: for how many
-- ms, the server's time in µs, 1 if the holder is a client of Redisson, else 0, and the holder.

local micros = now()
local resent = false -- an earlier attempt of this acquisition has taken the lock
local strangers = strangersOf(KEYS[2])
if call('EXISTS', KEYS[1], KEYS[2], KEYS[4], strangers) > 0 then
  if call('EXISTS', KEYS[4]) == 1 then
    return redis.status_reply('undone')
  end
  resent = call('HEXISTS', KEYS[1], ARGV[1]) == 1
  local left = resent and -2 or call('PTTL', KEYS[1])
  local holder, redisson = nil, 0 -- redisson is 1 if the holder is a client of Redisson, or may be soon
  if left == -1 then
    return redis.error_reply('CONFLICT a hash without an expiry is at the key, which is no lock')
  elseif left >= 0 then
    for _, field in ipairs(call('HKEYS', KEYS[1])) do
      if string.find(field, '^%x+%-%x+%-%x+%-%x+%-%x+:') then
        holder = (not holder or field < holder) and field or holder
        redisson = string.sub(field, 15, 15) ~= '8' and 1 or redisson -- by the version of its UUID
      elseif field == 'mode' then
        return redis.error_reply('CONFLICT a read-write lock of Redisson is at the key')
      end
    end
    if not holder and call('EXISTS', KEYS[1]) == 1 then -- in miniredis a key may expire between two commands
      return redis.error_reply('CONFLICT a hash that has no owner is at the key, so it is no lock')
    end
    if redisson == 1 then
      call('PEXPIRE', strangers, 0) -- it has had its turn; DEL would need one more right
    end
  elseif not resent then
    left = math.min(call('PTTL', strangers), LOOK_AGAIN)
    if (ARGV[4] or '') == '' and call('EXISTS', KEYS[2]) == 0 then
      left = -1 -- a call that does not queue will not ask again
    end
    redisson = left >= 0 and 1 or 0
    if left < 0 and grant(KEYS[1], KEYS[2], KEYS[3], ARGV[1], 0) then
      left, holder = call('PTTL', KEYS[1]), call('HKEYS', KEYS[1])[1]
    end
  end
  if left >= 0 then
    if ARGV[4] and ARGV[4] ~= '' then
      call('ZADD', KEYS[2], 'NX', ARGV[5] or micros, ARGV[4])
      local expires = redis.pcall('PEXPIRE', KEYS[2], QUEUE_LIMIT)
      if expires ~= 1 then -- a queue without an expiry would stay
        call('ZREM', KEYS[2], ARGV[4])
        return expires
      end
      -- At each attempt, since the holder may keep the lock without using it.
      if holder and redisson == 0 and call('ZRANGE', KEYS[2], 0, 0)[1] == ARGV[4] then
        tell(holder, 'wanted ' .. holder)
      end
    end
    return {math.max(left, 1), micros, redisson, holder or ''}
  end
end

return take(KEYS[1], KEYS[3], ARGV[1], ARGV[2], tonumber(ARGV[3] or 1), micros, resent)
