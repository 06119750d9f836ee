// Package differential proves that miniredis answers our lock scripts as a real Redis
// does, so that a simulation on miniredis says something about Redis.
//
// Its test (TestSame) draws sequences of commands from a seed: our scripts, as redislock
// sends them, with arguments that make sense and some that do not, and what other
// clients may do to the same keys, Redisson among them. Each command goes to both.
// After each, replies, all keys with their values, scores and expiries, and what
// subscribers heard must be the same:
//
//   - Errors are the same if redislock takes them for the same: it looks for a few words,
//     anywhere in the text, and for NOSCRIPT, MOVED and ASK at its beginning.
//   - The time is that of two keys which the test sets; the scripts read it there. So
//     tokens, scores and grants are equal to the digit.
//   - An expiry may be less at Redis, by as many milliseconds as passed there since both
//     were made equal, at the beginning of the same step, and by one for rounding. That
//     goes for replies as well that are milliseconds which are left. Between two steps no key
//     has an expiry at Redis. A difference that is seen in a step which took Redis over 20 ms
//     counts for none: the sequence is run once more.
//
// A difference is told with the shortest sequence that was found to lead to it. Other
// tests see to it that lies are found (TestFindsLies), and that the following is so.
//
// # What miniredis cannot do, or does otherwise
//
// [Repair] makes up for two differences:
//
//   - INFO knows two sections, and none of what redislock reads. Without it redislock
//     sends each lock's calls by themselves, and together.lua would not be simulated.
//   - A script that fails when EVAL brings it is not known afterwards. It only costs
//     round trips: EVALSHA is refused again.
//
// These remain. None matters to our scripts with the arguments that redislock gives them:
//
//   - redis.pcall raises an error if an argument is nil, as redis.call does; Redis returns
//     it. Our scripts pass what may be nil only if a call has too few keys or arguments.
//     TestSame ends a sequence where this shows, and says how many they were. The other
//     differences of this list are not drawn.
//   - tonumber knows a number with an exponent only if it has a point, and knows no
//     "inf". miniredis writes a score of a single digit and many zeros with an exponent,
//     as -4e+12. Our scripts read no scores; times are no such
//     numbers. With base 16 it takes "1.5" and "-1" for what they are, and Lua does not:
//     an owner's id begins with 12 hex digits.
//   - A number that becomes text by tostring or .. keeps all its digits, at Redis 14. Our
//     scripts use string.format, or hand numbers to commands, where they are alike.
//   - string.format ends a text that it is given at a byte of zero, at Redis. What our
//     scripts format are ids and numbers.
//   - Scores that are no integers read 0.1, at Redis 7.0 0.10000000000000001.
//   - An expiry of over 292 years overflows. A lease has 10 years at most.
//   - The text of an error that a script did not catch begins with "ERR Error compiling
//     script (new function): :12:", also for a refusal by a hook, and in the list of
//     together.lua with ":12:". redislock looks for its words behind that.
//   - EVALSHA of an unknown script is NOSCRIPT, also if the number of keys is wrong.
//   - There is no cmsgpack, bit or struct in Lua.
//
// In what follows a simulation must not rely on miniredis:
//
//   - Expiry is a duration that runs down, not an instant. If the clock goes back, a key
//     lives no longer, and at Redis it lives longer by as much. A simulation that sets the
//     clock back must lengthen all expiries. (If the clock goes forward, keys expire, as
//     at Redis.) It has no rounding: Redis counts milliseconds, and a key with 1 ms to live
//     is there until the millisecond after, with a PTTL of 0 in between. No lease ends
//     earlier at Redis than here.
//   - A key may expire in the middle of a script, unless the clock stands still meanwhile.
//     At Redis it is there until the script ends, if it was when it began. TIME is not
//     compared: Redis 7.0's goes on while a script runs.
//   - A message for a pattern is handed to a connection by another goroutine than one for a
//     channel, so that the two come in any order. Patterns are not drawn.
//   - Messages are handed to a subscriber's connection one by one, while the publisher
//     waits and the server is locked. A subscriber that does not read stops the whole
//     server, as soon as what lies between them is full: with [miniredis.Miniredis.Dial]
//     at once. Redis buffers, and hangs up on it. And they are written beside the
//     connection's replies: the answer to a PING or an UNSUBSCRIBE may overtake a message
//     that was published before.
//   - Memory is never short: no maxmemory, OOM or eviction. No ACL, but passwords: no user
//     lacks a right. A hook may imitate the refusals: [OOM], [NoPermission] and the others
//     are what Redis says, in scripts and outside; [Writes] and [NeedsMemory] tell of
//     which commands.
//   - No replicas: REPLICAOF, ROLE, READONLY are unknown, nothing is refused with READONLY
//     or MASTERDOWN, and WAIT answers 0 at once. No Sentinel.
//   - No Cluster: CLUSTER SLOTS names one node for all slots, KEYSLOT is 163 for every key,
//     nothing is refused with MOVED, ASK, TRYAGAIN, CLUSTERDOWN or CROSSSLOT; ASKING,
//     SPUBLISH and SSUBSCRIBE are unknown. The scripts for a Cluster are not compared.
//   - No persistence: SAVE, BGSAVE, SHUTDOWN, DEBUG are unknown, nothing is LOADING, and what
//     a restart loses is for the simulation to delete.
//   - No CLIENT but SETNAME and GETNAME: KILL, PAUSE, ID, LIST, SETINFO are unknown. No limit
//     on clients, buffers or idle connections. No CONFIG, MONITOR, SLOWLOG, FUNCTION.
//   - A script can't be interrupted (SCRIPT KILL), and others wait for it; nothing is BUSY.
package differential
