package lock

import (
	"context"
	"errors"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// maxLateGrants is how often a waiter asks again after a grant that took longer than its
// lease lasts. A server may stall once; if every grant is late, the ttl is too short.
const maxLateGrants = 3

// compete takes e's key at the backend, for h. Only the goroutine that is busy with e calls it.
// On return h holds e, or wakeNext has passed e on. lk is new, for the lease.
func (l *Locker) compete(ctx context.Context, e *entry, h *hold, end time.Time, lk *heldLease) (*hold, error) {
	for late := 1; ; late++ {
		op := acquireOp{locker: l, entry: e, hold: h, ctx: ctx, end: end, acquisition: &lk.acquisition, afterLateGrant: late > 1}
		lease, err := op.run()
		if e.id.kind != 0 && e.subscription != nil { // it is for this acquisition only
			e.subscription.Close()
			e.subscription = nil
		}
		if err != nil {
			return nil, l.stopCompeting(&op, err)
		}
		if inTime, err := l.granted(e, h, lk, lease); err != nil {
			return nil, err
		} else if inTime {
			return h, nil
		}
		if late > maxLateGrants || h.tries() || op.callerDone() {
			return nil, l.tooLate(e, h)
		}
		lk = &heldLease{}
	}
}

// granted makes h the holder of e, by lk with the granted lease. If the grant took longer than
// the lease lasts, or Sticky made the lease too short for a renewal, no hold may begin under it:
// granted releases the lease and reports false, and e stays busy.
func (l *Locker) granted(e *entry, h *hold, lk *heldLease, lease driver.Lease) (inTime bool, err error) {
	now := driver.Now()
	e.refusal = nil // no other holds the key
	left := lk.init(lease, e, l.tenure(lk.acquisition.TTL-h.policy.Delay), h.policy, now)
	if left <= 0 || lk.isTooShortFor(h, left) {
		l.releaseInBackground(lk)
		e.noteLateGrant()
		return false, nil
	}
	return true, l.begin(h, lk, now)
}

// begin makes h the holder of its entry by lk, which was granted just before now.
func (l *Locker) begin(h *hold, lk *heldLease, now driver.Instant) error {
	e := lk.entry
	e.shard.mu.Lock()
	if l.forced.Load() {
		h.trial.Store(int32(dropped)) // the Observer hears Rejected, and not Lost
	}
	e.giveLocked(h, lk, now)
	e.placed = false   // the grant ended the place in the engine's queue
	e.shareLocked(now) // before the Tries are rejected: they share too
	e.rejectTriesLocked()
	l.watchdog.addLocked(lk)
	e.shard.mu.Unlock()
	l.registrations[e.id.backend].schedule(l.notes)
	l.watchdog.start()
	l.watchdog.listen(lk)
	l.listenForRecall(lk)
	l.endOutage(e.id.backend)
	if l.forced.Load() { // Close waits no longer, and nobody would renew the lease
		if l.lose(lk, errLockerClosed) {
			_ = l.release(endedContext, lk, time.Now())
		}
		return ErrClosed
	}
	return nil
}

// acquireOp is one goroutine's competition for one key at the backend.
type acquireOp struct {
	locker         *Locker
	entry          *entry
	hold           *hold
	ctx            context.Context     // the caller's
	end            time.Time           // of the policy's wait
	acquisition    *driver.Acquisition // what the backend is asked for
	afterLateGrant bool                // the last grant came too late: with Sticky, ask for the whole ttl
	reserved       *heldLease          // set by reserve: where the lease goes
	deadlock       error               // ErrDeadlock if the wait was one, or nil
	subscribeErr   error               // of the last Subscribe: without a subscription op polls
}

// fillAcquisition sets what the backend is asked for.
func (op *acquireOp) fillAcquisition() {
	p := op.hold.policy
	number, contested := op.locker.newNumber(op.entry)
	*op.acquisition = driver.Acquisition{
		Key:       op.locker.prefix + op.entry.id.key,
		ID:        op.locker.newID(number),
		TTL:       p.ttl() + p.Delay,
		Tokens:    1,
		Queue:     !op.hold.tries(),
		NoRenewal: p.NoRenew || p.Delay > 0, // a provisional lease would end before the Delay does
		Mode:      p.mode(),
	}
	tenure := op.locker.tenure(p.ttl())
	switch {
	case tenure == 0:
	case p.Sticky > 0 && !op.afterLateGrant:
		// Reserve no more tokens than the server's clock counts until the lease is over.
		op.acquisition.TTL = min(p.ttl(), p.Sticky)
		op.acquisition.Tokens, op.acquisition.Recall = tokensFor(min(op.acquisition.TTL, maxTokenSpan)), true
	case contested:
		// A hold that gets the lease handed on needs its own ttl ahead.
		op.acquisition.TTL += tenure
		op.acquisition.Tokens = max(tokensFor(tenure)/uint64(max(p.Permits, 1)), 1) // all permits share the clock
	}
}

// run returns the lease, or the backend's raw error: a *driver.HeldError if the key
// was held by another until the end.
func (op *acquireOp) run() (driver.Lease, error) {
	p := op.hold.policy
	op.fillAcquisition()
	ctx, cancel := op.bounded()
	defer cancel()
	if op.hold.queued {
		ctx, cancel = op.locker.untilClose(ctx)
		defer cancel()
	}
	if op.callerDone() { // the turn came as the wait ended: nothing needs to be sent
		return nil, op.entry.heldOrOutage()
	}
	lease, err := op.attempt(ctx)
	if ttl := p.ttl() + p.Delay; op.acquisition.TTL > ttl && errors.Is(err, ErrInvalid) {
		// The longer lease exceeds the engine's limit: ask for one that is not handed on.
		op.acquisition.TTL, op.acquisition.Tokens = ttl, 1
		lease, err = op.attemptAgain(ctx)
	}
	if !isHeld(err) {
		return lease, err
	}
	op.hold.observePermits(op.ctx, op.entry.id.key, err)
	if op.hold.tries() {
		return nil, err
	}
	return op.wait(ctx, err)
}

// wait tries again when the engine notifies, when the holder's lease ends, and
// once a second.
func (op *acquireOp) wait(ctx context.Context, err error) (driver.Lease, error) {
	e := op.entry
	e.placed = true
	e.shard.mu.Lock()
	e.competing = &contender{hold: op.hold, since: monotonic()}
	e.noteRefusalLocked(err)
	e.setWaitingLocked(true)
	e.rejectTriesLocked()
	e.shard.mu.Unlock()
	op.hold.observeWaiting(op.ctx, e.id.key)
	defer traceWait(op.ctx, op.hold.policy)()
	ctx, nested := op.locker.waitNested(ctx, op.hold.first.frame.outer, op.hold.policy, e.backend, e.id.key)
	defer func() { op.deadlock = nested.end() }()
	ctx, cancel := op.locker.untilClose(ctx)
	defer cancel()
	due := time.Now().Add(pollAfter(err))
	for {
		if fresh := op.subscribe(ctx, due); !fresh || heldError(err).Notified { // else a release may have been missed
			var notice <-chan struct{}
			if e.subscription != nil {
				notice = e.subscription.C()
			}
			select {
			case <-notice:
			case <-time.After(time.Until(due)):
			case <-ctx.Done():
				return nil, err
			}
		}
		if op.callerDone() { // a notice may come at the same moment
			return nil, err
		}
		var lease driver.Lease
		lease, err = op.attemptAgain(ctx)
		if !isHeld(err) {
			return lease, err
		}
		e.noteRefusal(err)
		due = time.Now().Add(pollAfter(err))
	}
}

// subscribe makes the entry's subscription if it has none and the engine notifies.
// It reports whether the subscription is new: then the key is tried again, because a
// release may have come before the subscription stood. A failure is not an error: the
// waiter polls at due, and subscribes again then.
func (op *acquireOp) subscribe(ctx context.Context, due time.Time) (fresh bool) {
	n, ok := op.entry.backend.(driver.Notifier)
	if !ok || op.entry.subscription != nil {
		return false
	}
	ctx, cancel := context.WithDeadline(ctx, due)
	defer cancel()
	s, err := n.Subscribe(ctx, op.acquisition)
	if err == nil || ctx.Err() == nil { // else it says only that ctx has ended
		op.subscribeErr = err
	}
	if err != nil {
		return false
	}
	op.entry.subscription = s
	return true
}

// bounded returns the caller's context, ending when the policy's wait does.
func (op *acquireOp) bounded() (context.Context, context.CancelFunc) {
	if op.end.IsZero() {
		return op.ctx, func() {}
	}
	return context.WithDeadline(op.ctx, op.end)
}

// callerDone reports whether the caller has stopped waiting. It reads the clock because a
// timer may not have fired yet.
func (op *acquireOp) callerDone() bool {
	return op.ctx.Err() != nil || !op.end.IsZero() && !time.Now().Before(op.end)
}
