package lock

import (
	"cmp"
	"slices"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// Snapshot is what a [Locker] holds and waits for at one moment.
type Snapshot struct {
	Holds    []HeldLock    // by backend, key and token
	Waiters  []WaitingCall // by backend and key, the longest wait first
	Idle     int           // leases that nobody holds, kept because of Policy.Sticky
	Orders   []Order       // in which patterns were nested since the Locker was made, by pattern
	CleanUps int           // acquires and releases without an answer that go on in the background
}

// HeldLock is one lock that is held.
type HeldLock struct {
	Backend string // the name in Options.Backends; empty for the Locker's own
	Key     string // without Options.Prefix
	Method  string // as in the Policy
	Pattern string // as in the Policy
	Kind    string // "mutex", "read", "write", "fair", "permits", "once" or "leader"

	Token    uint64        // the fencing token
	Since    time.Time     // when this hold began
	Deadline time.Time     // when it is lost unless it is renewed until then
	TTL      time.Duration // how long the lease is when it is renewed
}

// WaitingCall is one call that waits for a lock.
type WaitingCall struct {
	Backend string // the name in Options.Backends; empty for the Locker's own
	Key     string // without Options.Prefix
	Method  string // as in the Policy
	Pattern string // as in the Policy
	Kind    string // as in HeldLock

	Since    time.Time // when it began to wait
	AtEngine bool      // another process holds the key; else one of this process has it, or competes
}

// Snapshot returns what l holds and waits for, for a page or a log of an operator. It asks
// no engine. It locks one part of the keys after the other: what it returns was true of each
// key, and not of all keys at the same instant.
func (l *Locker) Snapshot() Snapshot {
	var all Snapshot
	for i := range l.shards {
		all.addShard(&l.shards[i])
	}
	all.CleanUps = l.cleanup.pending()
	all.Orders = l.orders.list()
	slices.SortFunc(all.Holds, func(a, b HeldLock) int {
		return cmp.Or(cmp.Compare(a.Backend, b.Backend), cmp.Compare(a.Key, b.Key), cmp.Compare(a.Token, b.Token))
	})
	slices.SortFunc(all.Waiters, func(a, b WaitingCall) int {
		return cmp.Or(cmp.Compare(a.Backend, b.Backend), cmp.Compare(a.Key, b.Key), a.Since.Compare(b.Since))
	})
	return all
}

func (all *Snapshot) addShard(s *shard) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, clock := time.Now(), monotonic()
	queues := map[*waitQueue]bool{} // the permits of a semaphore share one
	for _, e := range s.entries {
		switch e.state {
		case idle:
			all.Idle++
		case held:
			all.addHold(e, e.holder, now)
			for h := range e.lease.sharers {
				if h != e.holder {
					all.addHold(e, h, now)
				}
			}
		}
		if c := e.competing; c != nil {
			all.addWaiter(e, c.hold.policy, now.Add(c.since-clock), true)
		}
		if queues[e.waitQueue] {
			continue
		}
		queues[e.waitQueue] = true
		for w := e.first; w != nil; w = w.next {
			all.addWaiter(e, w.hold.policy, now.Add(w.since-clock), false)
		}
	}
}

func (all *Snapshot) addHold(e *entry, h *hold, now time.Time) {
	all.Holds = append(all.Holds, HeldLock{
		Backend: e.id.backend, Key: e.id.key, Method: h.policy.Method, Pattern: h.policy.Pattern, Kind: h.policy.kindName(h.kindNow()),
		Token: h.token, Since: now.Add(-h.heldFor(driver.At(now))), Deadline: now.Add(e.lease.deadline().LeftAt(now)), TTL: e.lease.length(),
	})
}

func (all *Snapshot) addWaiter(e *entry, p *Policy, since time.Time, atEngine bool) {
	all.Waiters = append(all.Waiters, WaitingCall{
		Backend: e.id.backend, Key: e.id.key, Method: p.Method, Pattern: p.Pattern, Kind: p.kindName(p.kind()),
		Since: since, AtEngine: atEngine,
	})
}

// kindName is the name of the kind of a lock under p that is of kind k now.
func (p *Policy) kindName(k driver.Kind) string {
	switch {
	case p.Leader:
		return "leader"
	case k == 0:
		return "mutex"
	}
	return k.String()
}
