package lock

import (
	"sync/atomic"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// heldLease is a lease that this process holds, as the local queue and the
// watchdog see it.
type heldLease struct {
	driver.Lease
	provisional driver.ProvisionalLease // the Lease, if it is one, or nil
	acquisition driver.Acquisition      // the backend gets its address
	entry       *entry
	holder      atomic.Pointer[hold]

	delay           time.Duration // of the policy
	sticky          stickyLease
	handOnUntil     driver.Instant // until then it may go to the next in the queue
	yieldAfter      driver.Instant // the same if another process wants it
	token, tokenEnd uint64         // the next fencing token, and the first one after the block
	releasing       releaseContext // of its one release

	sharers map[*hold]struct{} // those that share it with its holder, because they read

	completed  atomic.Bool // of AcquireOnce: the release has begun, and records the tick
	downgraded atomic.Bool // it was a writer's, and is a reader's now

	// For the watchdog, guarded by the shard's mutex.
	dueAtGrant bool           // its first renewal was due when it was granted; set once
	wanted     bool           // it is a driver.WantedLease; set once
	renewing   bool           // a renewal is under way
	index      int32          // in the shard's heap; -1 when not in it
	due        driver.Instant // when it looks at this lease next
	failure    *error         // of the last renewal, or nil
}

// init makes lk the lease that was granted just before now. It returns how long the
// holder has it: 0 or less if the grant took too long.
func (lk *heldLease) init(lease driver.Lease, e *entry, tenure time.Duration, p *Policy, now driver.Instant) (left time.Duration) {
	lk.Lease, lk.entry, lk.index = lease, e, -1
	lk.delay = p.Delay
	if lk.acquisition.Recall {
		lk.sticky.keepFor, lk.sticky.ttl = p.Sticky, p.ttl()
		tenure = maxStickyFactor * p.Sticky
	}
	first, n := lease.Tokens()
	lk.token, lk.tokenEnd = first, first+n
	lk.provisional, _ = lease.(driver.ProvisionalLease)
	_, lk.wanted = lease.(driver.WantedLease)
	// The deadline counts from before the acquire was sent, and so must the tenure. A
	// lease that came late is renewed at once.
	term := lk.term()
	ahead := lk.ends().Sub(now)
	sent := now.Add(min(ahead-term, 0)) // a renewal may have come between term and ends
	lk.handOnUntil, lk.yieldAfter = sent.Add(tenure), sent.Add(min(tenure, wantedTenure))
	after := max(lk.renewalIn(now), 0)
	lk.dueAtGrant = after == 0
	lk.due = now.Add(min(after, renewAfter(lk.length())))
	return ahead - margin(term)
}

// deadline is when the lease is over for its holder: earlier than the engine
// ends it, by a hundredth of its length and up to 2 ms, because clocks do not
// run equally fast (the drift that Redlock reckons with).
func (lk *heldLease) deadline() driver.Instant {
	term := lk.term()
	return lk.ends().Add(-margin(term))
}

// ends is when the lease ends for its holder: the policy's Delay before the engine ends it.
func (lk *heldLease) ends() driver.Instant {
	end := lk.Lease.Deadline()
	if lk.delay > 0 {
		return end.Add(-lk.delay)
	}
	return end
}

// term is the length that the deadline was computed with. Read it before the
// deadline: if a renewal comes in between, the lease then looks like a short one with
// a late deadline, and not like a long one that is over.
func (lk *heldLease) term() time.Duration {
	if lk.provisional != nil {
		return lk.provisional.Term() - lk.delay
	}
	return lk.length()
}

// length is the length of the lease for its holder, once it is not provisional.
func (lk *heldLease) length() time.Duration {
	if lk.sticky.growth.Load() == grown {
		return lk.sticky.ttl
	}
	return lk.acquisition.TTL - lk.delay
}

// ttl is what the engine is asked for.
func (lk *heldLease) ttl() time.Duration {
	if lk.sticky.growth.Load() != notGrown {
		return lk.sticky.ttl
	}
	return lk.acquisition.TTL
}

func margin(ttl time.Duration) time.Duration {
	return ttl/100 + min(ttl/10, 2*time.Millisecond)
}

// renewAfter is a third of the lease: two renewals may fail before it is over.
func renewAfter(ttl time.Duration) time.Duration { return ttl / 3 }

// renewalIn is how long it is from now until lk is to be renewed, by its deadline.
func (lk *heldLease) renewalIn(now driver.Instant) time.Duration {
	term := lk.term()
	return lk.ends().Sub(now) - (term - renewAfter(term))
}

// retryAfter is when a renewal without an answer is sent again.
func retryAfter(ttl time.Duration) time.Duration {
	return min(max(ttl/20, 5*time.Millisecond), time.Second)
}

func (lk *heldLease) nextToken() uint64 {
	t := lk.token
	lk.token++
	return t
}
