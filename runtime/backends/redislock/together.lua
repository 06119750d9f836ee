-- Acquires, releases and renews many locks in one command, because a command costs the
-- server more than a lock's script itself.
--
-- acquire, release and renew are the scripts of these names. together.go puts them before
-- this one, as functions with the KEYS and ARGV of one lock.
--
-- KEYS    of all, one after the other
-- ARGV[1] three bytes for each: 'a', 'r' or 'n', how many keys, how many arguments
-- ARGV[2] and on: of all, one after the other
--
-- Returns a list with the result of each. If one fails, its result is a list with the text of
-- its error, and the others run all the same. An error reply inside a list would not do: if
-- go-redis (v9.23) knows the error (OOM, NOPERM) it leaves the rest of the list unread, and the
-- next command on the connection would get that as its answer.

local scripts = {a = acquire, r = release, n = renew}
local key, arg = 0, 1
local answers = {}
for i = 1, #ARGV[1], 3 do
  local keys, args = string.byte(ARGV[1], i + 1, i + 2)
  keys, args = keys - 48, args - 48 -- the digit 0
  local its = {KEYS[key + 1], KEYS[key + 2], keys >= 3 and KEYS[key + 3] or nil, keys == 4 and KEYS[key + 4] or nil}
  local arguments = {ARGV[arg + 1], args >= 2 and ARGV[arg + 2] or nil}
  for n = 3, args do
    arguments[n] = ARGV[arg + n]
  end
  key, arg = key + keys, arg + args
  local done, answer = pcall(scripts[string.sub(ARGV[1], i, i)], its, arguments)
  if not done and type(answer) ~= 'table' then -- of an error of Lua itself, or before Redis 7
    answer = {tostring(answer)}
  elseif type(answer) == 'table' and answer.err then
    answer = {answer.err}
  end
  answers[#answers + 1] = answer
end
return answers
