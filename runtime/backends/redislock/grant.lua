-- tokenTTL returns for how many ms a token is remembered: at least least, and until the clock
-- has passed it. That takes longer if another server's clock has raised the token: a minute at
-- most, which is by how much clocks may differ.
local function tokenTTL(last, least)
  return math.max(least, math.min(math.ceil((last / 4 - now()) / 1000) + TOKEN_LIMIT, 60000))
end

-- strangersOf returns the key that exists while a free lock is left to Redisson's clients. It is made from
-- the queue's key, so that it differs from all keys of other locks.
local function strangersOf(queue)
  return 'lockgen:strangers:' .. string.sub(queue, #'lockgen:queue:' + 1)
end

-- take gives a free lock to id for lease ms, and returns the first of its n tokens or the
-- server's error. After an error it leaves no lock without an expiry, since scripts do not roll
-- back. resent says that the last n tokens are of the same acquisition, and unused.
local function take(lock, token, id, lease, n, micros, resent)
  local first = micros * 4
  local least = n == 1 and TOKEN_LIMIT or lease + TOKEN_LIMIT
  -- SET returns the last token: with GET, tokens would fall for a user without that right.
  local last = redis.pcall('SET', token, first + n - 1, 'PX', least, 'GET')
  if type(last) == 'table' then
    return last
  end
  if (tonumber(last or 0) or 0) >= first then -- the clock went back, or tokens are reserved ahead of it
    first = last + 1 - (resent and n or 0)
    call('SET', token, first + n - 1, 'PX', tokenTTL(first + n - 1, least))
  end
  if resent then -- a copy that comes late must not shorten a lease that was renewed since
    lease = math.max(lease, call('PTTL', lock))
  end
  call('HSET', lock, id, '1')
  local expires = redis.pcall('PEXPIRE', lock, lease)
  if expires ~= 1 and redis.pcall('HDEL', lock, id) ~= 1 then
    call('SET', lock, '', 'PX', 1) -- of the commands that end a key, SET is allowed, since the token was set
  end
  return expires == 1 and first or expires
end

-- grant gives a free lock to the first in the queue whose process is connected. It reports
-- whether there was one. It stops at the entry of the caller, which then takes the lock itself.
--
-- A member of the queue has all that a grant needs: owner id, lease in ms, tokens.
--
-- redisson is how many clients of Redisson wait. The message says to hold the lock only
-- once (2) if any do, or briefly (1) if the queue has further entries.
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
      redis.pcall('INCRBY', token, -n) -- the tokens were not used
    end
    head = call('ZRANGE', queue, 0, 0)[1]
  end
  return false
end
