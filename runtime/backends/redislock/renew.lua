-- Renews up to a hundred leases. It never makes a lock, and never shortens one.
--
-- KEYS    pairs: lock, its token key
-- ARGV    pairs: owner id, lease in ms
--
-- FORGET is put in by script.go.
--
-- Returns for each pair 1 if renewed, 0 if the lock is not this owner's.

local answers = {}
for i = 1, #KEYS, 2 do
  -- pcall: what another client put at one key must not fail the others.
  if redis.pcall('HEXISTS', KEYS[i], ARGV[i]) == 1 then
    if redis.call('PTTL', KEYS[i]) < tonumber(ARGV[i + 1]) then
      redis.call('PEXPIRE', KEYS[i], ARGV[i + 1])
    end
    if redis.call('PTTL', KEYS[i + 1]) < ARGV[i + 1] + FORGET then -- more if it was raised
      redis.call('PEXPIRE', KEYS[i + 1], ARGV[i + 1] + FORGET)
    end
    answers[#answers + 1] = 1
  else
    -- A server that was made a replica meanwhile, and has not its primary's data yet,
    -- is not to say this. It refuses to write, even to delete what nobody has: not the
    -- owner's field, which is there if it was the look that was refused.
    local refusal = redis.pcall('HDEL', KEYS[i], ARGV[i] .. '?')
    if type(refusal) == 'table' and string.find(refusal.err, 'READONLY', 1, true) then
      return refusal
    end
    answers[#answers + 1] = 0
  end
end
return answers
