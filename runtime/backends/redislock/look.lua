-- Tells what is at a key.
--
-- KEYS[1] the key
-- KEYS[2] the queue and KEYS[3] the token of the lock of this name; nil if nobody wants to know, or
--         while they may be on another node of a Cluster
-- ARGV[1] the queue of Redisson's fair lock of this name. It is no key of this script, because who has
--         no right to it may ask all the same
--
-- Returns the type of the value; for how many ms it is kept, -1 for ever; the server's time in µs;
-- how many stand in the queues; the token; and then of a record of ours all, of another string
-- its first bytes, and of a hash the names of its first fields.

local kind = call('TYPE', KEYS[1]).ok
local seen = {kind, call('PTTL', KEYS[1]), now(), 0, ''}
if kind == 'string' then
  local begins = call('GETRANGE', KEYS[1], 0, 17)
  seen[6] = string.match(begins, '^%x+ {') and call('GET', KEYS[1]) or begins
elseif kind == 'hash' then
  -- A list meets large hashes that are no locks, and has a right more.
  local fields, step = KEYS[2] and call('HSCAN', KEYS[1], 0, 'COUNT', 1000)[2], 2
  if not fields then
    fields, step = call('HKEYS', KEYS[1]), 1
  end
  for i = 1, math.min(#fields, 2000), step do
    seen[#seen + 1] = fields[i]
  end
end
if KEYS[2] then
  seen[4] = count('ZCARD', KEYS[2]) + count('LLEN', ARGV[1])
  local token = redis.pcall('GET', KEYS[3])
  seen[5] = type(token) == 'string' and token or ''
end
return seen
