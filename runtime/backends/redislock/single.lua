-- What the scripts of locks ask of a server by itself. cluster.lua has the same for a
-- Cluster; script.go puts one of the two before each script.

local call = redis.call

local function now() -- in µs
  local time = call('TIME')
  return time[1] * 1000000 + time[2]
end

-- tell sends a message to the process of an owner id, and reports whether that is
-- connected.
local function tell(id, message)
  local heard = redis.pcall('PUBLISH', 'lockgen:process:' .. string.sub(id, 1, 36), message)
  return type(heard) == 'number' and heard > 0
end

-- announce tells Redisson's clients on the lock's channel that it is free, and reports
-- whether anybody listens.
local function announce(channel)
  local heard = redis.pcall('PUBLISH', channel, '0')
  return type(heard) == 'number' and heard > 0
end

-- strangers returns how many clients of Redisson wait for the lock. Ours listen on its
-- channel by a pattern, which NUMSUB does not count.
local function strangers(channel)
  return redis.pcall('PUBSUB', 'NUMSUB', channel)[2] or 0
end
