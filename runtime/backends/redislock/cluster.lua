-- What the scripts of locks ask of a node of a Cluster: see single.lua.

local call = redis.call

local function now() -- in µs
  local time = call('TIME')
  return time[1] * 1000000 + time[2]
end

-- tell sends a message to the process of an owner id. PUBLISH counts only who is connected
-- to this node, so that everybody counts as connected.
local function tell(id, message)
  return type(redis.pcall('PUBLISH', 'lockgen:process:' .. string.sub(id, 1, 36), message)) == 'number'
end

-- announce tells Redisson's clients that the lock is free, on both kinds of channel: the
-- sharded one is used from Redis 7.0 on by its newer versions. It reports whether anybody
-- listens at this node.
local function announce(channel)
  local plain, sharded = redis.pcall('PUBLISH', channel, '0'), redis.pcall('SPUBLISH', channel, '0')
  return type(plain) == 'number' and plain > 0 or type(sharded) == 'number' and sharded > 0
end

-- strangers returns how many clients of Redisson may wait for the lock. Those of ours that
-- wait for a client of Redisson count as well, because a sharded channel knows no patterns.
local function strangers(channel)
  return (redis.pcall('PUBSUB', 'NUMSUB', channel)[2] or 0) + (redis.pcall('PUBSUB', 'SHARDNUMSUB', channel)[2] or 0)
end
