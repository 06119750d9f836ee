-- Replaces the record of a lock that is no mutex, if it still has the version that the caller
-- has seen. The caller alone knows what the record means: see runtime/internal/record.
--
-- KEYS[1] the lock: a string "<version> <state>"
-- ARGV[1] the version that was seen; '-' for no record
-- ARGV[2] the new record; '-' to look only. In it '"+<µs>"' stands for the time so many µs
--         from now, and '"@<n>"' for n more than the token of the clock
-- ARGV[3] for how long the server keeps it, in ms
-- ARGV[4] the messages to send: '<verb> <owner id>;' for each; nil for none
--
-- Returns 1 if it was replaced, else 0; the server's time in µs; and the record now.

local old = redis.pcall('GET', KEYS[1])
if type(old) == 'table' then
  local kind = call('TYPE', KEYS[1]).ok
  if kind == 'string' or kind == 'none' then -- the server refuses, for example because the user may not GET
    return old
  end
  return redis.error_reply('CONFLICT a value of type ' .. kind .. ' is at the key'
    .. (kind == 'hash' and ', such as a mutex of this package or a lock of Redisson' or ''))
end
local micros = now()
if ARGV[2] == '-' or (old and string.match(old, '^%S*') or '-') ~= ARGV[1] then
  return {0, micros, old or ''}
end
local new = string.gsub(ARGV[2], '"([+@])(%d+)"', function(sign, n)
  return string.format('%.0f', sign == '+' and micros + n or micros * 4 + n)
end)
call('SET', KEYS[1], new, 'PX', ARGV[3])
for verb, id in string.gmatch(ARGV[4] or '', '(%S+) (%S+);') do
  tell(id, verb .. ' ' .. id .. ' ' .. KEYS[1])
end
return {1, micros, new}
