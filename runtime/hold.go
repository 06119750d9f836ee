package lock

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// hold is one outermost acquisition of one key by one owner.
type hold struct {
	locker    *Locker // nil of a hold that was delegated to this process
	entry     *entry
	policy    *Policy
	lease     *heldLease
	token     uint64
	began     driver.Instant
	waited    bool         // the call has waited, here or at the engine, and the Observer knows
	queued    bool         // the call has waited in the queue
	handedOff bool         // the lease came from the hold before
	done      bool         // of AcquireOnce: Complete was called
	trial     atomic.Int32 // a value of type trial, in together.go

	method atomic.Pointer[methodContext] // nil before the method's call began
	lost   atomic.Pointer[error]         // why it was lost, or errGivenUp; nil before

	// What the acquire returns stands here to save allocations.
	first entering
	ctx   methodContext
}

// lostCause returns why the hold is lost, or nil if it is not known to be. It does
// not look at the clock.
func (h *hold) lostCause() error {
	if p := h.lost.Load(); p != nil {
		return *p
	}
	return nil
}

// check returns why the hold is lost, by the clocks at this instant.
func (h *hold) check() error {
	if cause := h.lostCause(); cause != nil {
		return cause
	}
	if h.lease.deadline().Left() <= 0 {
		return errLeaseOver
	}
	return nil
}

// lostError returns the error of op that h was lost for this cause.
func (h *hold) lostError(op string, cause error) error {
	return &Error{Op: op, Method: h.policy.Method, Key: h.entry.id.key, Err: because(ErrLost, cause)}
}

// heldFor is how long h has been held at now.
func (h *hold) heldFor(now driver.Instant) time.Duration { return now.Sub(h.began) }

// entering is what one acquire or re-entry makes: the Hold that it returns, and
// the context to run under.
type entering struct {
	held  Hold
	frame frame
	owned ownedContext
}

// enter makes the context for the method that h guards.
func (h *hold) enter(ctx context.Context, outer *frame) *Hold {
	x := &h.first
	x.frame.current.Store(h)
	x.frame.outer, x.frame.ctx = outer, &x.owned
	h.ctx.caller = h.ctx.traceHold(h.locker.methodCaller(ctx, h), h)
	x.owned = ownedContext{Context: &h.ctx, frame: &x.frame}
	x.held = Hold{frame: &x.frame, method: &h.ctx}
	h.setMethod(&h.ctx)
	return &x.held
}
