package history

import (
	"fmt"
	"slices"
	"time"
)

const (
	// late is by how much a lock in a sample may exceed its ttl, since taking a
	// sample takes time.
	late = 50 * time.Millisecond
	// poll is how long after its ttl the lock of a failed acquire may be left. A request
	// that the acquire sent may reach the engine only when the pause of a stopped server
	// ends, and an offer that is made then is valid for 1.5 s.
	poll = int64(3 * time.Second)
	// promptly is how long a release may take to reach the server when nothing is wrong.
	promptly = int64(250 * time.Millisecond)
)

// samples checks I3, I6, I7 and I9 by the samples of the server's keys.
func (s *scan) samples() {
	done := s.released()
	for i := range s.Samples {
		sample := &s.Samples[i]
		for j := range sample.Keys {
			k := &sample.Keys[j]
			if k.PTTL == -1 {
				s.sampled("I7", sample, k, "the key never expires")
			}
			if slices.Contains(s.Keys, k.Name) {
				s.lock(sample, k, done)
			}
			if IsKinded(k.Name) {
				s.record(sample, k)
			}
		}
	}
}

func (s *scan) sampled(invariant string, at *Sample, k *KeyState, format string, args ...any) {
	s.report(Violation{Invariant: invariant, Key: k.Name, At: at.End, Text: fmt.Sprintf(format, args...), Sample: k})
}

// released returns, by acquisition, when the last hold on its lease had been
// released without an error and the time to keep the lease idle was over.
func (s *scan) released() map[leaseKey]int64 {
	done := map[leaseKey]int64{}
	for _, hs := range s.holds {
		for _, h := range hs {
			if h.lease == nil {
				continue
			}
			k := leaseKey{h.lease.grant.Proc, h.lease.grant.Lease}
			if h.release == nil || h.release.Outcome != OK {
				done[k] = Never
			} else if done[k] != Never {
				done[k] = max(done[k], h.release.Ret+h.grant.Kept)
			}
		}
	}
	return done
}

// lock checks the sample of one mutex.
func (s *scan) lock(at *Sample, k *KeyState, done map[leaseKey]int64) {
	if k.Type != "hash" {
		s.sampled("I9", at, k, "the lock is a %s", k.Type)
		return
	}
	if len(k.Fields) != 1 {
		s.sampled("I9", at, k, "the lock has %d owners", len(k.Fields))
	}
	for id, count := range k.Fields {
		if count != "1" {
			s.sampled("I9", at, k, "%s holds the lock %s times at the server", id, count)
		}
		proc, known := s.owner(id)
		t := s.tries[leaseKey{proc, id}]
		if !known || t == nil {
			s.sampled("I6", at, k, "%s holds the lock, but no process asked for that", id)
			continue
		}
		s.owned(at, k, leaseKey{proc, id}, t, done)
	}
}

// owned checks the sample of one mutex whose owner is the acquisition id.
func (s *scan) owned(at *Sample, k *KeyState, id leaseKey, t *try, done map[leaseKey]int64) {
	longer := s.struck(ClockBack, t.first, at.End)
	if most := time.Duration(max(t.ttl, t.renewed)) + late; time.Duration(k.PTTL)*time.Millisecond > most && !longer {
		s.sampled("I7", at, k, "the lock lasts for %d ms more, but its ttl is %v", k.PTTL, time.Duration(max(t.ttl, t.renewed)))
	}
	if !s.struck(DataLoss, t.first, at.End) { // a loss of data also removes tombstones
		if at.Begin > t.freedAt {
			s.sampled("I6", at, k, "%s is there %v after its release was answered", id.id, Between(t.freedAt, at.Begin))
		}
		if c, ok := s.closed[id.proc]; ok && at.Begin > c.Ret && !s.mayStay(id) {
			s.sampled("I8", at, k, "%s is there %v after its Locker was closed", id.id, Between(c.Ret, at.Begin))
		}
	}
	if !t.granted && t.last != Never && at.Begin > t.last+t.ttl+poll && !longer {
		s.sampled("I6", at, k, "%s is there %v after its acquire had failed", id.id, Between(t.last, at.Begin))
	}
	// A call that is cancelled during an attempt undoes the attempt.
	if !t.granted && t.last != Never && at.Begin > t.last+promptly && s.quiet(t.last, at.End) {
		s.sampled("I6", at, k, "%s is there %v after its acquire had failed, and nothing was wrong", id.id, Between(t.last, at.Begin))
	}
	if end, ok := done[id]; ok && end != Never && at.Begin > end+promptly && s.quiet(end, at.End) && s.idle(k.Name, id, end, at.Begin) {
		s.sampled("I6", at, k, "%s is there %v after the last hold on it had been released", id.id, Between(end, at.Begin))
	}
	s.claimed(at, k, id)
}

// mayStay reports whether a lease may outlive its Locker: a lost lock with a delay stays closed.
func (s *scan) mayStay(id leaseKey) bool {
	l := s.leases[id]
	return l != nil && l.staysClosed()
}

// idle reports whether the records show no reason for the Locker to keep the lease
// after its last hold. A reason is an acquire of several locks that may have it.
func (s *scan) idle(key string, id leaseKey, from, to int64) bool {
	for _, r := range s.Records {
		// An acquire of several locks holds the first ones before it returns.
		if r.Proc == id.proc && r.Op == Acquire && r.Key == key && r.Several && r.Call <= to && r.Ret >= from {
			return false
		}
	}
	return true
}

// claimed checks I3 by the server's data: before the sample, no process may have
// believed that its lease lasts longer than it does at the server.
func (s *scan) claimed(at *Sample, k *KeyState, id leaseKey) {
	l := s.leases[id]
	if l == nil || l.freed < at.Begin || l.clipped <= at.Begin {
		return
	}
	over := at.End + (time.Duration(k.PTTL+1) * time.Millisecond).Nanoseconds() + rounding
	for _, c := range l.claims {
		if c.at < at.Begin && c.valid > over {
			s.sampled("I3", at, k, "process %d believed in its lease for %v longer than the server", id.proc, Between(over, c.valid))
			return
		}
	}
}
