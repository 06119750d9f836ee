package lock

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// leased is a lease that this process holds, as the local queue and the
// watchdog see it.
type leased struct {
	driver.Lease
	acquisition *driver.Acquisition
	entry       *entry
	holder      atomic.Pointer[hold]
	brief       driver.ProvisionalLease // nil if it can't be
	late        bool                    // its first renewal was due when it came

	handOnUntil driver.Instant // until then it may go to the next in line
	token, end  uint64         // the next fencing token, and the end of the block

	// Kept by the watchdog, under its mutex.
	due    time.Time // when it looks at this lease next
	index  int       // in its heap; -1 when not in it
	failed bool      // the last renewal had no answer
}

func newLeased(lease driver.Lease, a *driver.Acquisition, e *entry, tenure time.Duration) *leased {
	first, n := lease.Tokens()
	lk := &leased{Lease: lease, acquisition: a, entry: e, token: first, end: first + n, index: -1}
	lk.brief, _ = lease.(driver.ProvisionalLease)
	// The deadline counts from before the acquire was sent, and so must the tenure.
	term := lk.term()
	since := lease.Deadline().Add(-term)
	if since.Left() > 0 { // renewed between the two
		since = driver.Now()
	}
	lk.handOnUntil = since.Add(tenure)
	return lk
}

// deadline is when the lease is over for its holder: earlier than the engine
// ends it, by a hundredth of its length and up to 2 ms, because clocks do not
// run equally fast (the drift that Redlock reckons with).
func (lk *leased) deadline() driver.Instant {
	term := lk.term()
	return lk.Lease.Deadline().Add(-margin(term))
}

// term is the length that the deadline was reckoned with. It is to be read before
// the deadline: a lease that is renewed in between is then taken for a brief one
// with a late deadline, and not for a long one that is over.
func (lk *leased) term() time.Duration {
	if lk.brief != nil {
		return lk.brief.Term()
	}
	return lk.acquisition.TTL
}

func margin(ttl time.Duration) time.Duration {
	return ttl/100 + min(ttl/10, 2*time.Millisecond)
}

// canHandTo reports whether a holder under p may follow on this lease without
// a word to the engine: within the tenure, with a token left, with all of p's
// own ttl still ahead (or under a renewal to it that is on its way), and not much
// more, so that a crash under a short ttl does not keep the key for a long one.
func (lk *leased) canHandTo(p *Policy, now time.Time) bool {
	ttl, brief := p.ttl(), lk.term() < lk.acquisition.TTL
	ahead := lk.Lease.Deadline().LeftAt(now)
	if brief && !p.NoRenew && ahead > 0 {
		ahead = lk.acquisition.TTL
	}
	return lk.token < lk.end && lk.handOnUntil.LeftAt(now) > 0 && ahead >= ttl &&
		lk.acquisition.TTL <= ttl+lk.entry.holder.locker.tenure(ttl)
}

func (lk *leased) nextToken() uint64 {
	t := lk.token
	lk.token++
	return t
}

// release gives lease back to the engine for a caller that waits: at most 1 s,
// and 100 ms after ctx ended. What is not done by then goes on in the
// background. Where several are released for one caller, ctx is the
// releaseContext that bounds them all. It returns ErrLost if the engine
// answered "not yours", and any other error for what goes on.
func (l *Locker) release(ctx context.Context, lk *leased) error {
	rc, shared := ctx.(*releaseContext)
	if !shared {
		rc = newReleaseContext(ctx)
		defer rc.finish()
	}
	err := lk.Release(rc, lk.token-1)
	if err == nil || isLost(err) {
		return err
	}
	l.discard(lk)
	return err
}

// discard releases lk in the background.
func (l *Locker) discard(lk *leased) {
	l.janitor.add(lk.entry.id.backend, lk.acquisition.TTL, lk.freeing())
}

// discardNow does so for others who wait for it, and calls then after each attempt,
// and once at least.
func (l *Locker) discardNow(lk *leased, then func()) {
	free := lk.freeing()
	l.janitor.addUrgent(lk.entry.id.backend, lk.acquisition.TTL, func(ctx context.Context) error {
		defer then()
		return free(ctx)
	})
}

// freeing returns what releases lk, as it is now, and is done if it is not lk's any more.
func (lk *leased) freeing() func(context.Context) error {
	last := lk.token - 1
	return func(ctx context.Context) error {
		if err := lk.Release(ctx, last); !isLost(err) {
			return err
		}
		return nil
	}
}

// lose ends lk before its holder released it: the holder's context ends, and
// the next in line competes for the key. A lease that was released or lost
// already is left alone; lose reports whether it was lk's end.
func (l *Locker) lose(lk *leased, cause error) bool {
	e := lk.entry
	e.shard.mu.Lock()
	if e.lease != lk {
		e.shard.mu.Unlock()
		// Whoever loses it at this moment may not have come to that yet, and a
		// driver.LossNotifier's look returns when the holder has heard.
		if h := lk.holder.Load(); h != nil && h.lostCause() != nil {
			h.endLost(h.lostCause())
		}
		return false
	}
	h := e.holder
	// With the entry, so that a release that finds the entry gone knows why.
	h.lost.Store(&cause)
	e.state, e.lease, e.holder = busy, nil, nil
	e.shard.mu.Unlock()
	l.watchdog.remove(lk)
	h.endLost(cause)
	l.next(e) // whatever the Observer does
	h.observe(Lost, time.Since(h.began), h.fail("hold", cause))
	return true
}

// seizeAll takes away every lock that is still held and gives it back to its
// engine. A lock that is granted from here on, compete gives back.
func (l *Locker) seizeAll() {
	l.seized.Store(true)
	var all []*leased
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		for _, e := range s.entries {
			if e.lease != nil {
				all = append(all, e.lease)
			}
		}
		s.mu.Unlock()
	}
	for _, lk := range all {
		defer l.seize(lk) // each, even if an Observer panics at one
	}
}

func (l *Locker) seize(lk *leased) {
	taken := true
	defer func() {
		if taken {
			l.discard(lk)
		}
	}()
	taken = l.lose(lk, errClosedUnder)
}
