// Package sharded is a lock backend that takes each lock at one of several engines, by a
// hash of the key: for more locks than one engine can take. The loss of a member stops the
// locks of its keys, and no others.
//
//	b := sharded.New(map[string]driver.Backend{"a": redislock.New(a), "b": redislock.New(b)})
//	locker := lock.New(b, nil)
//
// Members are added by a new version of the membership, which processes are given one after
// the other, as in any deployment:
//
//	sharded.New(map[string]driver.Backend{"a": …, "b": …, "c": …}, sharded.Options{Version: 2})
//
// The first process with it writes it at each member. A key that moves to c is granted there once no lease
// can last where it was: after Options.LongestTTL and Options.Silence, 71 seconds unless set. Until then
// calls for it wait, and a call that does not, or whose wait ends, gets driver.ErrUnavailable. All
// other keys are granted as before, by old processes and new ones. An old process is refused
// the keys that have moved, and goes on with the others. Name a member that is taken out in
// Options.Leaving until then. Make one change after the other, each when the one before is
// through: otherwise keys wait for both. To go back is a change as well, with a version of its own.
//
// # What is protected
//
// No two hold one key, whatever processes of whatever versions run: a lease counts for its
// holder only as long as no change that the holder has not read of can have moved its key. A member
// that was away for longer than Silence, and has come back without its record and its locks, grants nothing
// until its leases would be over. Fencing tokens rise over a move, as far as the members' clocks agree to within Options.LongestTTL.
//
// # What is not
//
// A member that restarts empty sooner, or loses some writes that it had acknowledged, as a Redis whose replica
// was promoted: its keys are then as safe as on that engine alone. A member that is gone (nil) by
// Options.Leaving, while some process still reaches it. One version for two memberships, until a process has
// read the other's record; then it is refused. Different Options in different processes. Locks that are taken
// at a member directly.
//
// A change waits until every member answers.
//
// It takes mutexes only. A note of a process (driver.Noter) is kept at one member, by a hash of
// what it is about.
package sharded
