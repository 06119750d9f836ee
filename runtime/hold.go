package lock

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"
)

// Why a lock is no longer held; wrapped in ErrLost.
var (
	errLeaseOver   = errors.New("its lease is over")
	errNotOwner    = errors.New("the engine answered that another owns it, or no one")
	errClosedUnder = errors.New("the Locker was closed")
	errReturned    = errors.New("the locked method has returned")
	errOutlived    = errors.New("the method outlived the call that held the lock for it")

	errNested = because(ErrDeadlock, errors.New("this call chain holds the key already; say reentrant in the inner directive, or do not nest"))

	errNestedElsewhere = because(ErrDeadlock, errors.New("this call chain holds the key already, by another Locker of the same Backend; use one Locker for the process"))
)

// hold is one outermost acquisition of one key by one owner.
type hold struct {
	locker *Locker
	entry  *entry
	policy *Policy
	lease  *heldLease
	token  uint64
	began  time.Time
	waited bool // in the queue, or at the engine
	handed bool // the lease came from the hold before

	method atomic.Pointer[methodContext] // nil before the method's call began
	lost   atomic.Pointer[error]         // set once, with the entry's end

	// Of whoever acquired it; here to save allocations.
	first entering
	ctx   methodContext
}

// endLost ends the method's context, if it began; begin does it otherwise.
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
	if h.lease.deadline().LeftMeasured() <= 0 {
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

// renews reports whether the watchdog is to go on renewing for this holder.
func (h *hold) renews() bool {
	p := h.policy
	return !p.NoRenew && (p.Max == 0 || time.Since(h.began) < p.Max)
}

// Hold is what an acquire returns beside the context: the duty to release.
type Hold struct {
	ctx    context.Context // the method's
	caller context.Context // what it was derived from
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
	x.frame.hold, x.frame.outer, x.frame.ctx = h, outer, &x.owned
	h.ctx.caller = ctx
	x.owned = ownedContext{Context: &h.ctx, frame: &x.frame}
	x.held = Hold{ctx: &x.owned, caller: ctx, frame: &x.frame, method: &h.ctx}
	h.begin(&h.ctx)
	return &x.held
}

// begin notes the context of the method, to be ended by a loss; one that came
// before ends it at once.
func (h *hold) begin(m *methodContext) {
	h.method.Store(m)
	if cause := h.lostCause(); cause != nil {
		m.end(h.fail("hold", cause))
	}
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
	case h.rest == nil:
		h.releaseOne(h.caller, errp)
	default:
		h.method.end(errReturned)
		ctx := newReleaseContext(h.caller) // the bound is for all of them together
		defer ctx.finish()
		releaseAll(ctx, h.rest, errp)
	}
}

// Unlock is Release for code that locks by hand: it returns the error that wraps
// [ErrLost], or nil.
func (h *Hold) Unlock() error {
	var err error
	h.Release(&err)
	return err
}

// Context returns the context that owns the lock, as the acquire returned it.
func (h *Hold) Context() context.Context { return h.ctx }

// Key returns the lock's key. It is empty for a Hold of several locks.
func (h *Hold) Key() string {
	if h.rest != nil {
		return ""
	}
	return h.frame.hold.entry.id.key
}

// Token returns the lock's fencing token. It is 0 for a Hold of several locks: see
// [TokenOf].
func (h *Hold) Token() uint64 {
	if h.rest != nil {
		return 0
	}
	return h.frame.hold.token
}

// Deadline returns when the lock is lost unless it is renewed until then; of several
// locks, the first one. It is in the past once the lock was lost.
func (h *Hold) Deadline() time.Time {
	now := time.Now()
	if h.rest == nil {
		hold := h.frame.hold
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

// releaseAll releases the last one first.
func releaseAll(ctx context.Context, rest []*Hold, errp *error) {
	for _, one := range slices.Backward(rest) {
		one.releaseOne(ctx, errp)
	}
}

func (h *Hold) releaseOne(ctx context.Context, errp *error) {
	if !h.frame.closed.CompareAndSwap(false, true) {
		return
	}
	defer h.frame.hold.locker.leave()
	var err error
	if h.parent != nil {
		err = h.leaveReentry()
	} else {
		err = h.release(ctx)
	}
	if err == nil || errp == nil {
		return
	}
	switch {
	case *errp == nil:
		*errp = err
	case !saysLost(*errp, h.frame.hold.entry.id.key):
		*errp = errors.Join(*errp, err)
	}
}

// saysLost reports whether err says that the lock on key was lost. The loss of another
// lock, which err may wrap as well, is no reason to leave out that of this one.
func saysLost(err error, key string) bool {
	if at, ok := err.(*Error); ok && at.Key == key && errors.Is(at.Err, ErrLost) {
		return true
	}
	switch wraps := err.(type) {
	case interface{ Unwrap() error }:
		return saysLost(wraps.Unwrap(), key)
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(wraps.Unwrap(), func(one error) bool { return saysLost(one, key) })
	}
	return false
}

func (h *Hold) leaveReentry() error {
	hold := h.frame.hold
	h.parent.inner.leave()
	if h.parent.returned() {
		return hold.fail("release", errOutlived)
	}
	if cause := hold.lostCause(); cause != nil {
		return hold.fail("release", cause)
	}
	if hold.lease.deadline().Left() <= 0 { // whether or not a timer has fired
		return hold.fail("release", errLeaseOver)
	}
	return nil
}

func (h *Hold) release(ctx context.Context) error {
	hold := h.frame.hold
	// Children of the method that still run hear of the end before anyone
	// else can be inside.
	h.method.end(errReturned)
	now := time.Now()
	if hold.lostCause() == nil && hold.lease.deadline().LeftAt(now) <= 0 && hold.expire() {
		return hold.fail("release", hold.lostCause())
	}
	if cause := hold.lostCause(); cause != nil {
		hold.giveBack()
		return hold.fail("release", cause)
	}
	err := hold.locker.pass(ctx, hold, now)
	if cause := hold.lostCause(); cause != nil { // lost while pass was about to begin
		return hold.fail("release", cause)
	}
	if isLost(err) {
		err = hold.fail("release", errNotOwner)
		hold.observe(Lost, now.Sub(hold.began), err)
		return err
	}
	hold.observe(Released, now.Sub(hold.began), err)
	return nil
}

// expire ends h, whose lease is over, unless somebody has done so, and gives it back.
func (h *hold) expire() (done bool) {
	done = h.locker.lose(h.lease, errLeaseOver)
	if done {
		h.giveBack()
	}
	return done
}

// giveBack frees at the engine what it may still have of the lease of h, which is
// lost: the margin of the deadline, or what a renewal that had no answer has added.
func (h *hold) giveBack() {
	if !errors.Is(h.lostCause(), errNotOwner) {
		h.locker.discard(h.lease)
	}
}

func isLost(err error) bool { return errors.Is(err, ErrLost) }
