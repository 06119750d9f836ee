package lock

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// Why a lock is no longer held; wrapped in ErrLost.
var (
	errLeaseOver   = errors.New("its lease is over")
	errNoAnswer    = errors.New("its lease is over; a renewal has had no answer yet")
	errNotOwner    = errors.New("the engine answered that another owns it, or no one")
	errClosedUnder = errors.New("the Locker was closed")
	errReturned    = errors.New("the locked method has returned")
	errOutlived    = errors.New("the method outlived the call that held the lock for it")

	errNested = because(ErrDeadlock, errors.New("this call chain holds the key already; say reentrant in the inner directive, or do not nest"))

	errNestedElsewhere = because(ErrDeadlock, errors.New("this call chain holds the key already, by another Locker of the same Backend; use one Locker for the process"))
)

// hold is one outermost acquisition of one key by one owner.
type hold struct {
	locker *Locker // nil of a hold that was delegated to this process
	entry  *entry
	policy *Policy
	lease  *heldLease
	token  uint64
	began  driver.Instant
	waited bool         // in the queue, or at the engine
	handed bool         // the lease came from the hold before
	trial  atomic.Int32 // a trial: see together.go

	method atomic.Pointer[methodContext] // nil before the method's call began
	lost   atomic.Pointer[error]         // set once, with the entry's end

	// What the acquire returns stands here to save allocations.
	first entering
	ctx   methodContext
}

// endLost ends the method's context if it has begun. Otherwise begin does.
func (h *hold) endLost(cause error) {
	if m := h.method.Load(); m != nil {
		m.end(h.fail("hold", cause))
	}
}

// lostCause returns why the hold is lost, or nil as far as is known without
// looking at the clock.
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

func (h *hold) fail(op string, cause error) error {
	return &Error{Op: op, Method: h.policy.Method, Key: h.entry.id.key, Err: because(ErrLost, cause)}
}

// caller returns the context of the call that made h, for its values.
func (h *hold) caller() context.Context {
	if m := h.method.Load(); m != nil {
		return m.caller
	}
	return context.Background()
}

// heldFor is how long h has been held at now.
func (h *hold) heldFor(now driver.Instant) time.Duration { return now.Sub(h.began) }

// renews reports whether the watchdog is to go on renewing for this holder.
func (h *hold) renews() bool {
	p := h.policy
	return !p.NoRenew && (p.Max == 0 || driver.Now().Sub(h.began) < p.Max)
}

// Hold is what an acquire returns beside the context: the duty to release. Its
// methods stand in hold.go and release.go.
type Hold struct {
	frame  *frame
	parent *frame         // the frame that this one re-enters; nil for an outermost one
	rest   []*Hold        // the holds of an AcquireAll; nil for a single lock
	method *methodContext // nil for a re-entry
}

// entering is what one acquire or re-entry makes: what it returns, and the
// context to run under.
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
	h.begin(&h.ctx)
	return &x.held
}

// begin sets the method's context, which a loss ends. If the lock was lost before,
// begin ends it.
func (h *hold) begin(m *methodContext) {
	h.method.Store(m)
	if cause := h.lostCause(); cause != nil {
		m.end(h.fail("hold", cause))
	}
}

// Context returns the context that owns the lock, as the acquire returned it.
func (h *Hold) Context() context.Context { return h.frame.ctx }

// Key returns the lock's key. It is empty for a Hold of several locks.
func (h *Hold) Key() string {
	if h.rest != nil {
		return ""
	}
	return h.frame.hold().entry.id.key
}

// Token returns the lock's fencing token. It is 0 for a Hold of several locks: see
// [TokenOf].
func (h *Hold) Token() uint64 {
	if h.rest != nil {
		return 0
	}
	return h.frame.hold().token
}

// Deadline returns when the lock is lost unless it is renewed until then; of several
// locks, the first one. It is in the past once the lock was lost.
func (h *Hold) Deadline() time.Time {
	now := time.Now()
	if h.rest == nil {
		hold := h.frame.hold()
		if hold.lostCause() != nil {
			return now.Add(-1)
		}
		return now.Add(hold.lease.deadline().LeftAt(now))
	}
	first := h.rest[0].Deadline()
	for _, one := range h.rest[1:] {
		if d := one.Deadline(); d.Before(first) {
			first = d
		}
	}
	return first
}
