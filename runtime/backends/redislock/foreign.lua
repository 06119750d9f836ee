-- Tells what is at a key where a script of ours has found something else than it looks for.
--
-- KEYS[1] the lock
--
-- Returns 0 if there is nothing by now; else for how many ms the value is kept, -1 for ever,
-- and '<type>=' with what tells more: of a record of ours all, of another string its first
-- bytes, of a hash 'mode' if it has that field, else one of its fields.

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
