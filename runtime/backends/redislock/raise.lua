-- Raises the tokens of a lock's later leases above a token of another server.
--
-- KEYS[1] the lock
-- KEYS[2] the highest fencing token that is reserved or was used
-- ARGV[1] owner id
-- ARGV[2] the token
--
-- Returns 1, or 0 if the lock is not this owner's.

if call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
  return 0
end
if tonumber(call('GET', KEYS[2]) or 0) < tonumber(ARGV[2]) then
  call('SET', KEYS[2], ARGV[2], 'PX', tokenTTL(ARGV[2], math.max(call('PTTL', KEYS[1]), 0) + TOKEN_LIMIT))
end
return 1
