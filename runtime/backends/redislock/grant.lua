-- tokenTTL returns for how many ms a token is to be remembered: least, and until the clock is
-- ahead of it, which takes longer where another server's clock has raised it: a minute at
-- most, by which the clocks may differ.
local function tokenTTL(last, least)
  return math.max(least, math.min(math.ceil((last / 4 - now()) / 1000) + TOKEN_LIMIT, 60000))
end

-- strangersOf returns the key that exists while a free lock is left to Redisson's clients. It is made of
-- the queue's, so that it is no key of another lock, whatever that is named.
local function strangersOf(queue)
  return 'lockgen:strangers:' .. string.sub(queue, #'lockgen:queue:' + 1)
end

-- take makes a free lock an id's for so many ms and returns the first of its n tokens, or the
-- server's error: scripts do not roll back, and a lock without an expiry would stay, so none is
-- left behind. resent says that the last n tokens are the same acquisition's, and unused.
local function take(lock, token, id, lease, n, micros, resent)
  local first = micros * 4
  local least = n == 1 and TOKEN_LIMIT or lease + TOKEN_LIMIT
  -- The last token comes with SET: a user who may not GET would see tokens fall.
  local last = redis.pcall('SET', token, first + n - 1, 'PX', least, 'GET')
  if type(last) == 'table' then
    return last
  end
  if (tonumber(last or 0) or 0) >= first then -- the clock went back, or tokens are reserved ahead of it
    first = last + 1 - (resent and n or 0)
    call('SET', token, first + n - 1, 'PX', tokenTTL(first + n - 1, least))
  end
  if resent then -- a copy that comes late shortens no lease that was renewed by more since
    lease = math.max(lease, call('PTTL', lock))
  end
  call('HSET', lock, id, '1')
  local expires = redis.pcall('PEXPIRE', lock, lease)
  if expires ~= 1 and redis.pcall('HDEL', lock, id) ~= 1 then
    call('SET', lock, '', 'PX', 1) -- as for the token: of all that ends a key it is allowed
  end
  return expires == 1 and first or expires
end

-- grant gives a free lock to the first in line whose process is connected. It reports
-- whether there was one. It stops at the entry of the caller, who takes the lock itself then.
--
-- A member of the queue says all that a grant needs: owner id, lease in ms, tokens.
--
-- redisson is how many clients of Redisson wait. The message says whether to hold the lock
-- once only, because they do (2), or briefly, because others of ours are in line (1).
local function grant(lock, queue, token, caller, redisson)
  local head = call('ZRANGE', queue, 0, 0)[1]
  while head do
    call('ZREM', queue, head)
    local id, lease, n = string.match(head, '^(%S+) (%d+) (%d+)$')
    if id == caller then
      return false
    end
    if id then
      local micros = now()
      local hold = redisson > 0 and 2 or call('EXISTS', queue)
      n = tonumber(n)
      local first = take(lock, token, id, lease, n, micros)
      local given = type(first) == 'number' and first > 0
      if given and tell(id, string.format('granted %s %.0f %.0f %d ', id, first, micros, hold) .. lock) then
        return true
      end
      call('HDEL', lock, id)
      if not given then
        return false -- the server would deny it to the others as well
      end
      redis.pcall('INCRBY', token, -n) -- nobody has them
    end
    head = call('ZRANGE', queue, 0, 0)[1]
  end
  return false
end
