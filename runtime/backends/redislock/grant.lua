-- kept returns for how many ms a token is to be remembered: least, and until the clock is
-- ahead of it, which takes longer where another server's clock has raised it: a minute at
-- most, by which the clocks may differ.
local function kept(last, least)
  return math.max(least, math.min(math.ceil((last / 4 - now()) / 1000) + FORGET, 60000))
end

-- grant gives a free lock to the first in line whose process is connected. It reports
-- whether there was one. It stops at the entry of me, who takes the lock itself then.
--
-- A member of the queue says all that a grant needs: owner id, lease in ms, tokens.
--
-- others is how many clients of Redisson wait. The message says whether to hold the lock
-- once only, because they do (2), or briefly, because others of ours are in line (1).
local function grant(lock, queue, token, me, others)
  local head = call('ZRANGE', queue, 0, 0)[1]
  while head do
    call('ZREM', queue, head)
    local id, lease, n = string.match(head, '^(%S+) (%d+) (%d+)$')
    if id == me then
      return false
    end
    if id then
      local micros = now()
      local first = math.max(micros * 4, (tonumber(redis.pcall('GET', token) or 0) or 0) + 1)
      local hold = others > 0 and 2 or call('EXISTS', queue)
      call('HSET', lock, id, '1')
      -- A server that denies any of this must not leave a lock without an expiry or an owner.
      if redis.pcall('PEXPIRE', lock, lease) == 1
        and redis.pcall('SET', token, string.format('%.0f', first + n - 1), 'PX', kept(first + n - 1, lease + FORGET)).ok then
        if tell(id, string.format('granted %s %.0f %.0f %d ', id, first, micros, hold) .. lock) then
          return true
        end
        redis.pcall('INCRBY', token, -n) -- nobody has them; not where SET was refused: they would fall
      end
      call('HDEL', lock, id)
    end
    head = call('ZRANGE', queue, 0, 0)[1]
  end
  return false
end
