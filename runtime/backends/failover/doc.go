// Package failover is a lock backend made of a primary and standbys, of which one grants at a
// time. All processes read which one in a record, which one engine keeps.
//
//	b := failover.New(redislock.New(primary), []driver.Backend{redislock.New(standby)},
//		failover.Options{Record: etcdlock.New(etcd)})
//	locker := lock.New(b, nil)
//
// Each process probes the engines. If one finds that the engine which grants is away, and another
// is well, it writes the other into the record. The new engine grants once no lease of the old one
// can last: after Options.LongestTTL and Options.Silence, 71 seconds unless set. With the probes
// before that, locks are granted again within Failures × (Probe + Timeout), the wait,
// three Probes, and a second: 82 seconds unless set. Nobody is granted a lock meanwhile: calls
// that wait go on waiting, and a call that does not, or whose wait ends, gets driver.ErrUnavailable.
// Holders go on until their leases end, which are not renewed. The engine that was away stays out
// until it is switched back by hand ([Backend.Switch]), or the other fails. Fencing tokens rise
// over a switch.
//
// # What a partition can do
//
// It can't make two processes hold one key: a lease counts for its holder only as long as no
// switch that the holder has not read of can have opened another engine. But it can
// stop the service. A process that can't read the record grants nothing after
// Options.Silence, and its holds end. So the Record must be reachable for all: its loss stops all
// locks. If only one process can't reach the engine which grants, it switches all others, and each
// switch costs the wait. Processes that differ about which engine is away switch back and forth, no
// sooner than the wait. If that can't be accepted, use package quorum, whose processes need only
// reach more than half of its members, or Options.ByHand.
//
// # What can break it
//
// A Record that loses a write which it had acknowledged, but not all of them: a Redis whose
// replica was promoted. (If it has lost the whole record, all wait as for a switch, and tokens
// can fall where engines count by other numbers than a clock.) An engine that restarts with
// empty memory while its leases would still run, and before all processes have read that it was left, which
// takes until Silence after the switch: it grants again what it had granted. Processes with
// different Options. Locks that are taken at an engine directly, beside the failover. A
// clock of a process that runs wrong by more than a hundredth.
//
// It takes mutexes only. Notes of processes (driver.Noter) are kept at the engine that grants,
// and a switch leaves them behind.
package failover
