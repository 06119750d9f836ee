package history

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

const (
	// rounding is by how much Redis's clock of milliseconds may shorten a lease at
	// either end.
	rounding = int64(2 * time.Millisecond)
	// busyMachine is the default of History.Told.
	busyMachine = int64(400 * time.Millisecond)
)

// Verify returns the violations of these invariants in h. The grants of each key
// are sorted by token:
//
//	I1  tokens are unique, and their order agrees with real time
//	I2  no key is granted before its last lease was released or expired, and no
//	    lease is taken away earlier
//	I3  no process believes that it holds a key that was granted to another meanwhile
//	I4  the fenced register accepts no token below one that it has accepted, and
//	    each accepted one was granted to the hold that wrote it
//	I5  after the end of the lease, Check fails and the context has ended; no
//	    lease ends while nothing is wrong
//	I6  a release after the end of the lease returns ErrLost; the server has no lock
//	    that was released, undone or never acquired
//	I7  every lock expires, not later than its ttl
//	I8  after healing nothing is left behind: locks, waiters, goroutines
//	I9  a lock has exactly one owner, which holds it once
//	N8  no call outlives its context
//
// K1 to K5 are about locks that are not mutexes: see kinds. K6 to K8 are about bounds, delays and
// conditions: see extras.
func Verify(h *History) []Violation {
	x := newIndex(h)
	s := &scan{index: x, seen: map[string]int{}, told: cmp.Or(h.Told, busyMachine)}
	for _, key := range h.Keys {
		s.leaseOrder(key)
		s.holdOrder(key)
		s.checksAgainstGrants(key)
		s.register(key)
	}
	for _, hs := range x.holds {
		for _, hold := range hs {
			s.honest(hold)
		}
	}
	for _, l := range x.leases {
		s.kept(l)
	}
	s.kinds()
	s.extras()
	s.process()
	s.samples()
	slices.SortStableFunc(s.found, func(a, b Violation) int { return cmp.Compare(a.At, b.At) })
	return s.found
}

// scan collects the violations.
type scan struct {
	*index
	told  int64 // see History.Told
	found []Violation
	seen  map[string]int // by invariant, since one mistake may show in a thousand records
}

const enoughOfAKind = 5

func (s *scan) report(v Violation) {
	s.seen[v.Invariant+v.Key]++
	if s.seen[v.Invariant+v.Key] <= enoughOfAKind {
		s.found = append(s.found, v)
	}
}

// pair reports two records that can't both be correct.
func (s *scan) pair(invariant string, earlier, later Record, format string, args ...any) {
	s.report(Violation{
		Invariant: invariant, Key: later.Key, At: later.Ret,
		Text: fmt.Sprintf(format, args...), Records: []Record{earlier, later},
	})
}

// promised returns the instant until which the engine must keep the lease.
func (l *lease) promised() int64 { return min(l.freed, l.acknowledged-rounding, l.clipped) }

// stealable returns the instant from which on the engine may grant the key to another process. After the engine
// took a lease away, this is when its process learned of it: see kept.
func (l *lease) stealable() int64 { return min(l.promised(), l.lost) }

// believed returns the instant until which the process considered the lease its own.
func (l *lease) believed() int64 {
	until := int64(0)
	for _, c := range l.claims {
		until = max(until, c.valid)
	}
	return min(until-rounding, l.freed, l.lost, l.clipped)
}

// leaseOrder checks I1, I2 and I3 among the leases of key.
func (s *scan) leaseOrder(key string) {
	var called, stealable, believed *lease // of the leases before, those with the latest instant
	for i, l := range s.byKey[key] {
		if i > 0 {
			before := s.byKey[key][i-1]
			if before.grant.Token == l.grant.Token && !before.unused {
				s.pair("I1", before.grant, l.grant, "token %d was granted twice", l.grant.Token)
			}
			if called != nil && called.grant.Call > l.grant.Ret {
				s.pair("I1", called.grant, l.grant, "token %d was granted %v before the lower %d was asked for",
					l.grant.Token, Between(l.grant.Ret, called.grant.Call), called.grant.Token)
			}
			if at := stealable.stealable(); at > l.grant.Ret {
				s.pair("I2", stealable.grant, l.grant, "granted %v before the lease of %s was given up or over",
					Between(l.grant.Ret, at), stealable.grant.Lease)
			}
			if until := believed.believed(); until > l.grant.Ret {
				s.pair("I3", believed.grant, l.grant, "granted while process %d believed in its lease %s for %v more",
					believed.grant.Proc, believed.grant.Lease, Between(l.grant.Ret, until))
			}
		}
		// After a jump of the server's clock, the age of a grant with a late notice is not known.
		if l.clipped == Never && (called == nil || l.grant.Call > called.grant.Call) {
			called = l
		}
		if stealable == nil || l.stealable() > stealable.stealable() {
			stealable = l
		}
		if believed == nil || l.believed() > believed.believed() {
			believed = l
		}
	}
}

// bound returns the instant until which there must be no other hold.
func (h *hold) bound() int64 {
	end := int64(Never)
	if h.release != nil {
		end = h.release.Call
	}
	if h.lease != nil {
		end = min(end, h.lease.stealable())
	}
	return end
}

// holdOrder checks I1 and I2 for the holds of key, including holds that were handed on
// inside a process.
func (s *scan) holdOrder(key string) {
	var called, bound *hold
	for i, h := range s.holds[key] {
		if h.lease == nil {
			s.report(Violation{Invariant: "I1", Key: key, At: h.grant.Ret, Records: []Record{h.grant},
				Text: fmt.Sprintf("token %d belongs to no lease of process %d", h.grant.Token, h.grant.Proc)})
			continue
		}
		if i > 0 && s.holds[key][i-1].grant.Token == h.grant.Token {
			s.pair("I1", s.holds[key][i-1].grant, h.grant, "two holds have token %d", h.grant.Token)
		}
		if called != nil && called.grant.Call > h.grant.Ret {
			s.pair("I1", called.grant, h.grant, "the hold with token %d began %v before the hold with the lower token %d was asked for",
				h.grant.Token, Between(h.grant.Ret, called.grant.Call), called.grant.Token)
		}
		if bound != nil && bound.bound() > h.grant.Ret {
			s.pair("I2", bound.grant, h.grant, "the hold begins %v before the hold with token %d was released or expired",
				Between(h.grant.Ret, bound.bound()), bound.grant.Token)
		}
		if bound == nil || h.bound() > bound.bound() {
			bound = h
		}
		// A lease that a fault ended is handed on until its process learns of it.
		if h.lease.clipped == Never && (called == nil || h.grant.Call > called.grant.Call) {
			called = h
		}
	}
}

// checksAgainstGrants checks I3 by the results of Check: no Check may succeed after
// another hold, with a higher token, has begun.
func (s *scan) checksAgainstGrants(key string) {
	var next *hold // of the holds with a higher token, the first to begin
	for _, h := range slices.Backward(s.holds[key]) {
		for _, c := range h.checks {
			if next == nil || h.lease == nil || c.Outcome != OK {
				continue
			}
			if c.Call > next.grant.Ret && c.Call < h.lease.clipped {
				s.pair("I3", c, next.grant, "Check of the hold with token %d succeeded %v after the hold with token %d had begun",
					h.grant.Token, Between(next.grant.Ret, c.Call), next.grant.Token)
			}
		}
		if next == nil || h.grant.Ret < next.grant.Ret {
			next = h
		}
	}
}

// register checks I4.
func (s *scan) register(key string) {
	granted := map[holdKey]uint64{}
	for _, h := range s.holds[key] {
		granted[holdKey{h.grant.Proc, h.grant.Hold, key}] = h.grant.Token
	}
	highest := uint64(0)
	for _, a := range s.Attempts {
		if a.Key != key || !a.Accepted {
			continue
		}
		wrong := ""
		switch token, ok := granted[holdKey{a.Proc, a.Hold, key}]; {
		case a.Token < highest:
			wrong = fmt.Sprintf("a write with token %d was accepted after one with %d", a.Token, highest)
		case !ok:
			wrong = fmt.Sprintf("a write of process %d, hold %d, which was never granted, was accepted", a.Proc, a.Hold)
		case token != a.Token:
			wrong = fmt.Sprintf("a write with token %d was accepted from the hold with token %d", a.Token, token)
		}
		if wrong != "" {
			s.report(Violation{Invariant: "I4", Key: key, At: a.At, Text: wrong})
		}
		highest = max(highest, a.Token)
	}
}
