// Package differential proves that miniredis answers our lock scripts as a real Redis
// does, so that the results of a simulation on miniredis hold for Redis.
//
// Its test (TestSame) draws sequences of commands from a seed: our scripts, as redislock
// sends them, with arguments that make sense and some that do not, and commands that other
// clients, such as Redisson, may send about the same keys. Each command goes to both servers.
// After each command, the replies, all keys with their values, scores and expiries, and the
// messages to subscribers must be the same:
//
//   - Errors are the same if redislock treats them in the same way: it looks for a few words
//     anywhere in the text, and for NOSCRIPT, MOVED and ASK at its beginning.
//   - The scripts read the time from two keys that the test sets. So
//     tokens, scores and grants are exactly equal.
//   - An expiry may be lower at Redis, by the milliseconds that have passed there since both
//     were made equal at the beginning of the step, and by one for rounding. The same
//     holds for replies that are remaining milliseconds. Between two steps no key
//     has an expiry at Redis. A difference in a step that took Redis over 20 ms
//     does not count: the sequence is repeated.
//
// A difference is reported with the shortest sequence that was found to lead to it. Other
// tests check that differences are found (TestFindsLies), and that the following is true.
//
// # What miniredis can't do or does differently
//
// [Repair] corrects two differences:
//
//   - INFO has only two sections, without the lines that redislock reads. Without these lines
//     redislock sends the calls of each lock separately, and together.lua would not be simulated.
//   - A script that fails when EVAL sends it is unknown afterwards. This only costs
//     round trips, since EVALSHA is refused again.
//
// These differences remain. None affects our scripts with the arguments that redislock gives them:
//
//   - redis.pcall raises an error if an argument is nil, as redis.call does; Redis returns
//     the error. In our scripts an argument can be nil only if a call has too few keys or
//     arguments. TestSame ends a sequence in which this happens, and reports their number. The
//     other differences of this list are not drawn.
//   - tonumber accepts a number with an exponent only if it has a point, and does not accept
//     "inf". miniredis writes a score of a single digit and many zeros with an exponent,
//     as -4e+12. Our scripts read no scores, and times are not such
//     numbers. With base 16 tonumber accepts "1.5" and "-1", and Lua does not:
//     an owner's id begins with 12 hex digits.
//   - A number that is converted to text by tostring or .. keeps all its digits; at Redis it keeps
//     14. Our scripts use string.format, or pass numbers to commands, where both are the same.
//   - At Redis, string.format cuts its text arguments at a zero byte. Our
//     scripts format only ids and numbers.
//   - A score that is not an integer reads 0.1; at Redis 7.0 it reads 0.10000000000000001.
//   - An expiry of over 292 years overflows. A lease lasts at most 10 years.
//   - The text of an error that a script did not catch begins with "ERR Error compiling
//     script (new function): :12:", even for a refusal by a hook, and in the list of
//     together.lua with ":12:". redislock looks for its words after that.
//   - EVALSHA of an unknown script returns NOSCRIPT even if the number of keys is wrong.
//   - Lua has no cmsgpack, bit or struct.
//
// A simulation must not rely on miniredis in the following:
//
//   - An expiry is a duration that runs down, not an instant. If the clock goes back, a key
//     does not live longer; at Redis it lives longer by that time. A simulation that sets the
//     clock back must lengthen all expiries. (If the clock goes forward, keys expire, as
//     at Redis.) An expiry is not rounded: Redis counts milliseconds, and a key with 1 ms to live
//     exists until the millisecond after, with a PTTL of 0 in between. No lease ends
//     earlier at Redis than at miniredis.
//   - A key may expire in the middle of a script, unless the clock is stopped meanwhile.
//     At Redis a key that exists when a script begins exists until the script ends. TIME is not
//     compared: at Redis 7.0 it continues while a script runs.
//   - A message for a pattern is sent by another goroutine than a message for a
//     channel, so the two may arrive in any order. Patterns are not drawn.
//   - Messages are written to a subscriber's connection one by one, while the publisher
//     waits and the server is locked. A subscriber that does not read stops the whole
//     server as soon as the buffers between them are full: with [miniredis.Miniredis.Dial]
//     at once. Redis buffers messages and then closes the connection. Also, messages are written
//     independently of the connection's replies: the answer to a PING or an UNSUBSCRIBE may
//     overtake a message that was published before.
//   - Memory is unlimited: no maxmemory, OOM or eviction. There is no ACL, but passwords: no user
//     lacks a right. A hook may imitate the refusals: [OOM], [NoPermission] and the others
//     are the texts of Redis, in scripts and outside; [Writes] and [NeedsMemory] report for
//     which commands.
//   - No replicas: REPLICAOF, ROLE, READONLY are unknown, no command is refused with READONLY
//     or MASTERDOWN, and WAIT answers 0 at once. No Sentinel.
//   - No Cluster: CLUSTER SLOTS names one node for all slots, KEYSLOT is 163 for every key,
//     no command is refused with MOVED, ASK, TRYAGAIN, CLUSTERDOWN or CROSSSLOT; ASKING,
//     SPUBLISH and SSUBSCRIBE are unknown. The scripts for a Cluster are not compared.
//   - No persistence: SAVE, BGSAVE, SHUTDOWN, DEBUG are unknown, no command is refused with LOADING,
//     and the simulation itself must delete the data that a restart loses.
//   - No CLIENT except SETNAME and GETNAME: KILL, PAUSE, ID, LIST, SETINFO are unknown. No limit
//     on clients, buffers or idle connections. No CONFIG, MONITOR, SLOWLOG, FUNCTION.
//   - A script can't be interrupted (SCRIPT KILL). Other commands wait for it, and none is refused with BUSY.
package differential
