package lock

import (
	"context"
	"errors"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// Hold is what an acquire returns beside the context: the duty to release.
type Hold struct {
	frame  *frame
	parent *frame         // the frame that this one re-enters; nil for an outermost one
	holds  []*Hold        // the holds of an AcquireAll; nil for a single lock
	method *methodContext // nil for a re-entry
}

// Context returns the context that owns the lock, as the acquire returned it.
func (h *Hold) Context() context.Context { return h.frame.ctx }

// Key returns the lock's key. It is empty for a Hold of several locks.
func (h *Hold) Key() string {
	if h.holds != nil {
		return ""
	}
	return h.frame.hold().entry.id.key
}

// Token returns the lock's fencing token. It is 0 for a Hold of several locks: see
// [TokenOf].
func (h *Hold) Token() uint64 {
	if h.holds != nil {
		return 0
	}
	return h.frame.hold().token
}

// Deadline returns when the lock is lost unless it is renewed until then; of several
// locks, the first one. It is in the past once the lock was lost.
func (h *Hold) Deadline() time.Time {
	now := time.Now()
	if h.holds == nil {
		hold := h.frame.hold()
		if hold.lostCause() != nil {
			return now.Add(-1)
		}
		return now.Add(hold.lease.deadline().LeftAt(now))
	}
	first := h.holds[0].Deadline()
	for _, one := range h.holds[1:] {
		if d := one.Deadline(); d.Before(first) {
			first = d
		}
	}
	return first
}

// Release ends the hold. It must run in a defer, with the address of the
// method's error result (or nil): if the lease was over before the method
// returned, or the engine answers "not the owner", *errp becomes an error that
// wraps [ErrLost] beside the method's own; nothing else touches *errp. A
// release that fails or has no answer goes on in the background. It holds its
// caller up for 1 s at most, and for 100 ms once the caller's context has
// ended. A second call does nothing, and so does a call on a nil Hold.
func (h *Hold) Release(errp *error) {
	switch {
	case h == nil:
	case h.parent != nil:
		h.addTo(errp, h.releaseOne(h.frame.ctx))
	case h.holds == nil:
		h.addTo(errp, h.releaseOne(h.method.caller))
	default:
		h.method.end(errReturned)
		ctx := newReleaseContext(h.method.caller, time.Now()) // the bound is for all of them together
		defer ctx.finish()
		releaseAll(ctx, h.holds, errp)
	}
}

// Unlock is Release for code that locks by hand: it returns the error that wraps
// [ErrLost], or nil.
func (h *Hold) Unlock() error {
	var err error
	h.Release(&err)
	return err
}

func (h *Hold) releaseOne(ctx context.Context) error {
	r := h.beginRelease()
	if r.lease != nil {
		r.err = r.hold.locker.free(ctx, r.lease, r.clock)
	}
	return r.end()
}

// releasing is one release. Between beginRelease and end the engine frees its lease.
type releasing struct {
	hold  *hold          // nil for a re-entry, and if there is nothing to release any more
	lease *heldLease     // that the engine is to free, or nil
	clock time.Time      // when it began
	now   driver.Instant // the same
	err   error          // the engine's answer; if over, the result of the release
	over  bool           // the engine has nothing to do
}

// addTo adds err, with which h was released, to the error result of the method.
func (h *Hold) addTo(errp *error, err error) {
	if err == nil || errp == nil {
		return
	}
	switch {
	case *errp == nil:
		*errp = err
	case saysLost(*errp, h.frame.hold().entry.id.key):
	case isContextError(*errp): // because the lock was lost, most likely: say that first
		*errp = errors.Join(err, *errp)
	default:
		*errp = errors.Join(*errp, err)
	}
}

func (h *Hold) leaveReentry() error {
	hold := h.frame.hold()
	h.parent.slot().leave()
	if h.parent.returned() {
		return hold.lostError("release", errOutlived)
	}
	if err := hold.check(); err != nil { // whether or not a timer has fired
		return hold.lostError("release", err)
	}
	return nil
}

// beginRelease does what comes before the engine is asked. end must follow.
func (h *Hold) beginRelease() (r releasing) {
	if !h.frame.closed.CompareAndSwap(false, true) {
		return r
	}
	hold := h.frame.hold()
	if hold.locker == nil {
		return releasing{err: h.leaveDelegated(hold)}
	}
	if h.parent != nil {
		return releasing{err: h.leaveReentry()}
	}
	r.hold, r.over = hold, true
	// End the method's context first: goroutines that it left behind must hear of
	// the end before another holder begins.
	h.method.end(errReturned)
	r.clock = time.Now()
	r.now = driver.At(r.clock)
	if hold.lostCause() == nil && hold.lease.deadline().Sub(r.now) <= 0 && hold.expire() {
		r.err = hold.lostError("release", hold.lostCause())
		return r
	}
	if cause := hold.lostCause(); cause != nil {
		hold.releaseLost()
		r.err = hold.lostError("release", cause)
		return r
	}
	if hold.done { // not before: a lost lease may be freed at any time
		hold.lease.completed.Store(true)
	}
	if rest := hold.policy.AtLeast - hold.heldFor(r.now); rest > 0 && hold.method.Load() != nil { // else the method has not run
		hold.releaseAfter(rest)
		return r
	}
	r.lease, r.over = hold.locker.handOn(hold, r.now), false
	return r
}

// end does what comes after the engine was asked, and returns the error for the method's caller.
func (r *releasing) end() error {
	hold := r.hold
	if hold == nil {
		return r.err
	}
	defer hold.locker.leave(hold.entry.shard)
	if r.over {
		return r.err
	}
	err := r.err
	if cause := hold.lostCause(); cause != nil { // lost just before handOn began
		return hold.lostError("release", cause)
	}
	if isLost(err) {
		err = hold.lostError("release", errNotOwner)
		hold.observe(Lost, hold.heldFor(r.now), err)
		return err
	}
	hold.observe(Released, hold.heldFor(r.now), err)
	return nil
}

// releaseAfter releases the lock of h, whose method has returned, when rest is over.
// The watchdog renews it meanwhile. A Close waits for it as for a hold, unless it is lost.
func (h *hold) releaseAfter(rest time.Duration) {
	l := h.locker
	h.entry.shard.active.Add(1)
	kept := &methodContext{caller: context.WithoutCancel(h.caller())}
	h.setMethod(kept) // so that a loss ends kept
	go func() {
		select {
		case <-time.After(rest):
		case <-kept.Done():
		}
		r := releasing{hold: h, now: driver.Now()}
		lease := l.handOn(h, r.now)
		if lease == nil {
			_ = r.end() // tells the Observer
			return
		}
		l.releaseInBackgroundThen(lease, func(err error) {
			r.err = err
			l.wakeNext(lease.entry)
			_ = r.end()
		})
	}()
}

// expire ends h, whose lease is over, and releases the lease. It reports false if the
// watchdog was first.
func (h *hold) expire() (done bool) {
	done = h.locker.lose(h.lease, errLeaseOver)
	if done {
		h.releaseLost()
	}
	return done
}

// releaseLost releases the lost lease of h at the engine, where the lease may last longer:
// by the margin of the deadline, or because of a renewal that had no answer. Under a policy
// with Delay it leaves the lease to its expiry.
func (h *hold) releaseLost() {
	switch h.lostCause() {
	case errNotOwner, errGivenUp, errNotRetaken, errLockerClosed: // it has no lease any more, or Close gives it back
		return
	}
	if h.policy.Delay == 0 {
		h.locker.releaseInBackground(h.lease)
	}
}

// free releases lease, which handOn returned, and lets the next in the queue of its entry
// compete.
func (l *Locker) free(ctx context.Context, lease *heldLease, now time.Time) error {
	e := lease.entry
	if ctx == endedContext { // nobody waits for this release, and it must not hold the caller up
		l.releaseInBackgroundThen(lease, func(error) { l.wakeNext(e) })
		return nil
	}
	err := l.release(ctx, lease, now)
	l.wakeNext(e)
	return err
}

// release gives lk back to the engine for a caller that waits: at most 1 s,
// and 100 ms after ctx ended. What is not done by then goes on in the
// background. Where several are released for one caller, ctx is the
// releaseContext that bounds them all. It returns ErrLost if the engine
// answered "not yours", and any other error if the release goes on.
func (l *Locker) release(ctx context.Context, lk *heldLease, now time.Time) error {
	rc, shared := ctx.(*releaseContext)
	if !shared {
		rc = &lk.releasing
		rc.init(ctx, now)
		defer rc.finish()
	}
	err := lk.Release(rc, lk.token-1)
	return l.finishRelease(lk, err)
}

// finishRelease returns err, the result of the engine's release of lk. Unless the engine has
// answered, the release goes on in the background.
func (l *Locker) finishRelease(lk *heldLease, err error) error {
	if err != nil && !isLost(err) {
		l.releaseInBackground(lk)
	}
	return err
}

// releaseInBackground releases lk, and again until the engine answers.
func (l *Locker) releaseInBackground(lk *heldLease) { l.releaseInBackgroundThen(lk, func(error) {}) }

// releaseInBackgroundThen is releaseInBackground for a release that others wait for. It calls
// then with the result of the first attempt.
func (l *Locker) releaseInBackgroundThen(lk *heldLease, then func(err error)) {
	last, first := lk.token-1, true
	l.cleanup.add(lk.entry.id.backend, lk.ttl(), func(ctx context.Context) error {
		err := lk.Release(ctx, last)
		if first {
			first = false
			then(err)
		}
		if isLost(err) {
			return nil
		}
		return err
	})
}

// lose ends lk before its holder released it: the holder's context ends, and
// the next in the queue competes for the key. It does nothing to a lease that was
// released or lost already; lose reports whether it ended lk.
func (l *Locker) lose(lk *heldLease, cause error) bool {
	e := lk.entry
	e.shard.mu.Lock()
	if e.lease != lk {
		e.shard.mu.Unlock()
		// Another goroutine may be about to end the method's context. A
		// driver.LossNotifier's look must not return before that has happened. A hold
		// that Cond.Wait gave up keeps its context.
		if h := lk.holder.Load(); h != nil {
			if cause := h.lostCause(); cause != nil && cause != errGivenUp {
				h.endLost(cause)
			}
		}
		return false
	}
	byTime := cause == errLeaseOver
	if byTime {
		cause = lk.overCauseLocked()
	}
	var all []*hold
	wasIdle := e.state == idle
	if !wasIdle {
		all = append(lk.listSharers(), e.holder)
	}
	// Set under the shard's mutex: a release that finds another holder reads it.
	for _, h := range all {
		h.lost.Store(&cause)
	}
	e.endLocked()
	e.shard.mu.Unlock()
	for _, h := range all {
		h.endLost(cause)
	}
	// Nobody else releases an idle lease, which may last longer at the engine. If the engine
	// has lost the lock, an attempt without an answer may yet take it again; a release
	// prevents that.
	if wasIdle && byTime || cause == errNotOwner && lk.acquisition.MayHaveRun {
		l.releaseInBackground(lk)
	}
	l.wakeNext(e)
	for _, h := range all {
		h.observe(Lost, h.heldFor(driver.Now()), h.lostError("hold", cause))
	}
	return true
}

// Release releases lk at the engine. If Complete was called, it records the tick as well.
func (lk *heldLease) Release(ctx context.Context, last uint64) error {
	if c, ok := lk.Lease.(driver.Completer); ok && lk.completed.Load() {
		return c.Complete(ctx, last)
	}
	return lk.Lease.Release(ctx, last)
}

// endLocked ends the lease of e and the watch over it. A renewal that is under way
// changes nothing any more: the engine checks the owner, and its answer is ignored.
func (e *entry) endLocked() {
	e.shard.leases.remove(e.lease)
	e.state, e.lease, e.holder, e.closedToReaders = busy, nil, nil, false
}
