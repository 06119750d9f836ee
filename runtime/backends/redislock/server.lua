-- Functions that the scripts of locks begin with. CLUSTER is true in the text for a node of a
-- Cluster, and false in the text for a server outside a Cluster.

local call = redis.call

local function now() -- in µs
  local time = call('TIME')
  return time[1] * 1000000 + time[2]
end

-- count returns how many clients a message reached, or how many listen: 0 if the server denies
-- the command or does not know it.
local function count(...)
  local n = redis.pcall(...)
  return type(n) == 'table' and n[2] or tonumber(n) or 0
end

-- tell sends a message to the process of an owner id, and reports whether that is connected. A
-- node of a Cluster counts only its own clients, so there every process counts as connected.
-- The message is not replicated: a process that listens at a replica is not counted, and would
-- think that it holds a lock which went to another. pcall: other servers may have no set_repl.
local function tell(id, message)
  pcall(redis.set_repl, redis.REPL_NONE)
  local heard = redis.pcall('PUBLISH', 'lockgen:process:' .. string.sub(id, 1, 36), message)
  pcall(redis.set_repl, redis.REPL_ALL)
  return type(heard) == 'number' and (CLUSTER or heard > 0)
end

-- announce tells Redisson's clients on the lock's channel that the lock is free, and reports
-- whether any client listens at this node. In a Cluster newer versions of Redisson use the
-- sharded channel, from Redis 7.0 on.
local function announce(channel)
  return count('PUBLISH', channel, '0') + (CLUSTER and count('SPUBLISH', channel, '0') or 0) > 0
end

-- redissonWaiters returns how many clients of Redisson may wait for the lock. Our processes
-- listen on its channel by a pattern, which NUMSUB does not count. A sharded channel has no
-- patterns, so there our processes that wait for a client of Redisson count as well.
local function redissonWaiters(channel)
  return count('PUBSUB', 'NUMSUB', channel) + (CLUSTER and count('PUBSUB', 'SHARDNUMSUB', channel) or 0)
end
