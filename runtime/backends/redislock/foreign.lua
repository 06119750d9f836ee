-- Tells what is at the key of a mutex that a script of ours has found to be no hash.
--
-- KEYS[1] the lock
--
-- Returns 0 if there is nothing by now, or a hash; else for how many ms the value is kept, -1
-- for ever, and '=' with its first bytes, '' if it is no string.

local kind = call('TYPE', KEYS[1]).ok
if kind == 'none' or kind == 'hash' then
  return 0
end
return {call('PTTL', KEYS[1]), kind == 'string' and '=' .. call('GETRANGE', KEYS[1], 0, 17) or ''}
