-- Tells what is at a key at which another script has found something that is no lock of ours.
--
-- KEYS[1] the lock
--
-- Returns 0 if the key is empty now; else for how many ms the value is kept, -1 for ever, and
-- '<type>=' with details: all of a record of ours, the first bytes of another string, and of a
-- hash 'mode' if it has that field, else one of its fields.

local kind = call('TYPE', KEYS[1]).ok
if kind == 'none' then
  return 0
end
local more = ''
if kind == 'string' then
  more = call('GETRANGE', KEYS[1], 0, 17)
  more = string.match(more, '^%x+ {') and call('GET', KEYS[1]) or more
elseif kind == 'hash' then
  more = call('HEXISTS', KEYS[1], 'mode') == 1 and 'mode' or call('HKEYS', KEYS[1])[1] or ''
end
return {call('PTTL', KEYS[1]), kind .. '=' .. more}
