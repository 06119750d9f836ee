package main

import "github.com/lockgen/lockgen/internal/soak/mutant"

const (
	redislock = "runtime/backends/redislock/"
	quorum    = "runtime/backends/quorum/"
	failover  = "runtime/backends/failover/"
	sharded   = "runtime/backends/sharded/"
	locker    = "runtime/"
)

// more are mistakes beside those that the soak finds: in the scripts of Redis, and in
// the Locker's hand-off, watchdog and clean-up.
var more = []mutant.Mutant{
	{
		Name: "token-forgot", Mistake: "a token that does not look at the last one",
		Patches: []mutant.Patch{{File: redislock + "grant.lua", Old: "if (tonumber(last or 0) or 0) >= first then", New: "if false then"}},
	},
	{
		Name: "token-late", Mistake: "a late release that writes back its token",
		Patches: []mutant.Patch{{File: redislock + "release.lua", Old: "if free and ARGV[3] and ARGV[3] ~= ''", New: "if ARGV[3] and ARGV[3] ~= ''"}},
	},
	{
		Name: "grant-late", Mistake: "a granted lease that counts from the notice",
		Patches: []mutant.Patch{{File: redislock + "waiter.go", Old: "l.extend(w.sent.Add(age), ", New: "l.extend(driver.Now().Add(0*age), "}},
	},
	{
		Name: "undone", Mistake: "an acquire that does not look for its tombstone",
		Patches: []mutant.Patch{{File: redislock + "acquire.lua", Old: "if call('EXISTS', KEYS[4]) == 1 then", New: "if false then"}},
	},
	{
		Name: "in-line", Mistake: "an undo that leaves its entry in the queue",
		Patches: []mutant.Patch{{File: redislock + "release.lua", Old: "call('ZREM', KEYS[2], ARGV[4]) == 1", New: "false"}},
	},
	{
		Name: "no-expiry", Mistake: "an acquire that leaves the lock when it may not expire",
		Patches: []mutant.Patch{
			{File: redislock + "grant.lua", Old: "if expires ~= 1 and redis.pcall('HDEL', lock, id) ~= 1 then", New: "if false then"},
		},
	},
	{
		Name: "given-dead", Mistake: "a release that frees for the next in line without an owner check",
		Patches: []mutant.Patch{{File: redislock + "release.lua", Old: "local free = freed == 1", New: "local free = true"}},
	},
	{
		Name: "votes-at-once", Mistake: "a member of a quorum that votes as soon as it has restarted",
		Patches: []mutant.Patch{{File: quorum + "member.go", Old: "missing > 0 {", New: "missing > 0 && false {"}},
		Faults:  []string{"empty-members"},
	},
	{
		Name: "gives-up-early", Mistake: "an attempt at a quorum that fails before a majority has answered",
		Patches: []mutant.Patch{{File: quorum + "acquire.go", Old: "yes+refused < v.b.majority && ", New: "refused < 0 && "}},
	},
	{
		Name: "base-as-it-was", Mistake: "a quorum that does not raise the tokens of a member which counts by revisions",
		Patches: []mutant.Patch{{File: quorum + "base.go", Old: "if least <= own {", New: "if true {"}},
		Faults:  []string{"cut-members", "stop-server"},
	},
	{
		Name: "switch-now", Mistake: "a switch that does not wait for the leases of before",
		Patches: []mutant.Patch{{File: failover + "switch.go", Old: "!s.Open && e.learned.Add(b.terms.Drain()).Left() <= 0", New: "!s.Open"}},
		Faults:  []string{"switch-by-hand", "leave-engine", "cut-members"},
	},
	{
		Name: "no-rest", Mistake: "a switch before the one before it could be of use",
		Patches: []mutant.Patch{{File: failover + "switch.go", Old: "e.learned.Add(b.minEpochAge()).Left() > 0", New: "false"}},
		Faults:  []string{"differ"},
	},
	{
		Name: "asks-closed", Mistake: "an engine that grants before the switch to it has waited",
		Patches: []mutant.Patch{{File: failover + "epoch.go", Old: "case !e.Open:", New: "case false:"}},
		Faults:  []string{"switch-by-hand", "leave-engine", "cut-members"},
	},
	{
		Name: "blind-holder", Mistake: "a lease that counts on although the record was not read",
		Patches: []mutant.Patch{{File: failover + "lease.go", Old: "return engine.Earlier(l.Lease.Deadline(), until)", New: "_ = until\n	return l.Lease.Deadline()"}},
		Faults:  []string{"blind"},
	},
	{
		Name: "own-tokens", Mistake: "an engine that grants by its own tokens, whatever the one before gave",
		Patches: []mutant.Patch{
			{File: failover + "switch.go", Old: "token <= least", New: "false"},
			{File: failover + "switch.go", Old: "token+next.Offset+b.ceilingStep()", New: "max(next.Ceiling, token+b.ceilingStep())"}, // a lower one counts as lost
			{File: failover + "acquire.go", Old: "first <= floor", New: "false"},
		},
		Faults: []string{"switch-by-hand"},
	},
	{
		Name: "move-now", Mistake: "a key that moves without a wait",
		Patches: []mutant.Patch{{File: sharded + "record.go", Old: "e.learned.Add(b.terms.Drain()).Left() > 0", New: "false"}},
		Faults:  []string{"new-version"},
	},
	{
		Name: "opens-empty", Mistake: "a member that came back empty and grants at once",
		Patches: []mutant.Patch{{File: sharded + "record.go", Old: "case e == nil:\n		return m", New: "case e == nil:\n		mine.Open = true\n		return m"}},
		Faults:  []string{"empty-member"},
	},
	{
		Name: "handoff-block", Mistake: "a hand-off beyond the block of tokens",
		Patches: []mutant.Patch{{File: locker + "handoff.go", Old: "return lk.token < lk.tokenEnd && ", New: "return "}},
	},
	{
		Name: "handoff-over", Mistake: "a hand-off of a lease that is over",
		Patches: []mutant.Patch{
			{File: locker + "handoff.go", Old: "lk.hasTenureLocked(now) && ahead >= ttl", New: "(ahead >= ttl || lk.hasTenureLocked(now) || true)"},
			{File: locker + "queue.go", Old: "case h.lostCause() == nil && (turn != stale || h.lease.deadline().Left() > 0):", New: "case true:"},
		},
	},
	{
		Name: "sticky-deaf", Mistake: "nobody hears who waits for a lease that is kept idle",
		Patches: []mutant.Patch{{File: locker + "sticky.go", Old: "\t\tr.NotifyWanted(&lk.acquisition, func() {", New: "\t\t_ = (func(*driver.Acquisition, func()))(r.NotifyWanted); _ = (func() {"}},
	},
	{
		Name: "handoff-gone", Mistake: "a hand-off to a waiter that gives up is lost",
		Patches: []mutant.Patch{{File: locker + "queue.go", Old: "	case granted:\n		l.handOnOrFree(endedContext, w.hold, time.Now())", New: "	case granted:"}},
	},
	{
		Name: "turn-gone", Mistake: "the turn of a waiter that gives up is lost",
		Patches: []mutant.Patch{{File: locker + "queue.go", Old: "	case compete:\n		l.wakeNext(w.entry)\n	}\n	return 0, err", New: "	}\n	return 0, err"}},
	},
	{
		Name: "renew-late", Mistake: "a watchdog that renews at the end of the lease",
		Patches: []mutant.Patch{{File: locker + "lease.go", Old: "{ return ttl / 3 }", New: "{ return ttl }"}},
	},
	{
		Name: "untold", Mistake: "a watchdog that does not end what is over",
		Patches: []mutant.Patch{{File: locker + "due.go", Old: "		r.over = append(r.over, lk)\n		return", New: "		return"}},
	},
	{
		Name: "check-ctx", Mistake: "a Check that looks at no clock",
		Patches: []mutant.Patch{{File: locker + "hold.go", Old: "h.lease.deadline().Left() <= 0", New: "false"}},
	},
	{
		Name: "abandoned", Mistake: "an acquire without an answer that nobody undoes",
		Patches: []mutant.Patch{{File: locker + "handoff.go", Old: "if unknown || e.placed && alone {", New: "if false {"}},
	},
	{
		Name: "once", Mistake: "a clean-up that is tried once",
		Patches: []mutant.Patch{{File: locker + "cleanup.go", Old: "return <-answer != nil && !time.Now().After(end)", New: "return <-answer != nil && false"}},
	},
	{
		Name: "missed", Mistake: "a waiter that subscribes and does not look again",
		Patches: []mutant.Patch{{File: locker + "acquire.go", Old: "if fresh := op.subscribe(ctx, due); !fresh || heldError(err).Notified { // else a release may have been missed", New: "if op.subscribe(ctx, due); true {"}},
	},
}
