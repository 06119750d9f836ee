-- What the scripts of locks ask of the server. It comes before each of them. CLUSTER is true in
-- the text for a node of a Cluster, and false in that for a server by itself.

local call = redis.call

local function now() -- in µs
  local time = call('TIME')
  return time[1] * 1000000 + time[2]
end

-- count returns how many clients a message reached, or how many listen: none if the server
-- denies the command, or knows none of this name.
local function count(...)
  local n = redis.pcall(...)
  return type(n) == 'table' and n[2] or tonumber(n) or 0
end

-- tell sends a message to the process of an owner id, and reports whether that is connected. A
-- node of a Cluster counts only who is connected to itself, so everybody counts as connected.
-- Replicas are not told: who listens there is not counted, and would take itself for the holder
-- of a lock that has gone to the next. pcall: a server of another make may have no set_repl.
local function tell(id, message)
  pcall(redis.set_repl, redis.REPL_NONE)
  local heard = redis.pcall('PUBLISH', 'lockgen:process:' .. string.sub(id, 1, 36), message)
  pcall(redis.set_repl, redis.REPL_ALL)
  return type(heard) == 'number' and (CLUSTER or heard > 0)
end

-- announce tells Redisson's clients on the lock's channel that it is free, and reports whether
-- anybody listens, at this node. In a Cluster its newer versions use the sharded channel, from
-- Redis 7.0 on.
local function announce(channel)
  return count('PUBLISH', channel, '0') + (CLUSTER and count('SPUBLISH', channel, '0') or 0) > 0
end

-- redissonWaiters returns how many clients of Redisson may wait for the lock. Ours listen on its
-- channel by a pattern, which NUMSUB does not count. A sharded channel knows no patterns, so
-- that those of ours that wait for a client of Redisson count as well.
local function redissonWaiters(channel)
  return count('PUBSUB', 'NUMSUB', channel) + (CLUSTER and count('PUBSUB', 'SHARDNUMSUB', channel) or 0)
end
