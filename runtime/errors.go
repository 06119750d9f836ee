package lock

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/lockgen/lockgen/runtime/driver"
)

// What is known when a call fails. Match with [errors.Is].
var (
	// ErrNotAcquired says that the wait was over, or the context ended, before
	// this call's turn came: another owner held the key, or another goroutine of this
	// Locker was still waiting for the engine's answer, for three seconds at most; so the
	// error does not prove that somebody holds it. Or the grant took longer than its lease
	// lasts. The method did not run.
	ErrNotAcquired = errors.New("not acquired")

	// ErrBusy says that as many calls wait for the key as Policy.Queue allows. It is
	// joined with ErrNotAcquired.
	ErrBusy = errors.New("too many wait for it")

	// ErrUnavailable says that the engine refused, could not be reached, or may grant nothing yet.
	// The lock is not held and the method did not run.
	ErrUnavailable = driver.ErrUnavailable

	// ErrIndeterminate says that the outcome of an acquire is unknown. The
	// method did not run, and the acquire is being undone in the background.
	ErrIndeterminate = driver.ErrIndeterminate

	// ErrLost says that the lock was held and may no longer be. It is also the
	// cause of the context that the method runs under.
	ErrLost = driver.ErrLost

	// ErrDeadlock says that this call chain holds the key already, or asks for
	// an upgrade from read to write: waiting would never end. It also ends a cycle of calls
	// that hold locks and wait for each other: after half a second, and within a second, one
	// of them gets ErrDeadlock, and the others go on. A goroutine that waits under the
	// context of a locked method counts as that method. Calls of other processes count if
	// all of the locks are at one Backend that is a driver.Noter, as those of this module are,
	// and none of them is a read side or a permit. If a call holds many locks, the outermost
	// and the innermost 15 count. Not found are a wait for a permit, a wait to read behind a
	// writer that waits, a wait for another re-entry of the same hold, and a wait under
	// [Extract]: only a deadline ends those.
	ErrDeadlock = errors.New("deadlock")

	// ErrConflict says that something else lives at the key: no lock of ours, or one of another kind.
	ErrConflict = driver.ErrConflict

	// ErrInvalid says that a key or policy cannot be right. Nothing was sent.
	ErrInvalid = driver.ErrInvalid

	// ErrDone says that the tick was completed before, here or by another process. The
	// method did not run.
	ErrDone = driver.ErrDone

	// ErrNotHeld says that the code does not run under the lock that it requires: see
	// [Require].
	ErrNotHeld = errors.New("not under the lock")

	// ErrClosed says that the Locker is closed.
	ErrClosed = driver.ErrClosed
)

// Error says where one of the sentinels arose. It wraps the sentinel and,
// where there is one, the engine's or the context's own error.
type Error struct {
	// Op is what was tried. Of a lock: "acquire", "hold", "check", "require", "release",
	// "downgrade", "view" (who leads). Of a condition: "cond", "wait", "signal", "broadcast".
	// Of a delegation: "inject", "extract", "keyring". Else "key", "policy", "ping", "close".
	Op     string
	Method string // the locked method, "Service.Buy"; empty when locked by hand
	Key    string // the key; its pattern where the key itself is what failed
	Err    error  // the sentinel, with what it came from
}

// Error returns what was tried, on which key, for which method, and why it failed. A key that
// would spoil the line is quoted, and a very long one is cut.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("lock: ")
	b.WriteString(e.Op)
	if e.Key != "" {
		b.WriteString(" " + shownKey(e.Key))
	}
	if e.Method != "" {
		b.WriteString(" (" + e.Method + ")")
	}
	b.WriteString(": ")
	b.WriteString(e.Err.Error())
	return b.String()
}

// shownKey returns key for an error text, quoted or cut, so that a key can neither forge a line
// of a log nor fill it.
func shownKey(key string) string {
	const most = 1024 // of bytes, as most engines take
	end := ""
	if len(key) > most {
		key, end = key[:most], "…"
	}
	if strings.ContainsFunc(key, func(r rune) bool { return !strconv.IsPrint(r) }) || !utf8.ValidString(key) {
		key = strconv.Quote(key)
	}
	return key + end
}

// Unwrap returns what the error wraps.
func (e *Error) Unwrap() error { return e.Err }

// Why a lock is no longer held; wrapped in ErrLost.
var (
	errLeaseOver    = errors.New("its lease is over")
	errNoAnswer     = errors.New("its lease is over; a renewal has had no answer yet")
	errNotOwner     = errors.New("the engine answered that this process no longer owns it")
	errLockerClosed = errors.New("the Locker was closed")
	errReturned     = errors.New("the locked method has returned")
	errOutlived     = errors.New("the method outlived the call that held the lock for it")

	errNested = because(ErrDeadlock, errors.New("this call chain holds the key already; say reentrant in the inner directive, or do not nest"))

	errNestedElsewhere = because(ErrDeadlock, errors.New("this call chain holds the key already, by another Locker of the same Backend; use one Locker for the process"))
)

// errBackendClosed says why an open Locker can't lock.
var errBackendClosed = errors.New("its Backend was closed with an earlier Locker; give lock.New a new one")

// because joins a sentinel and its cause on one line, where errors.Join would
// print two. A cause that already says kind is returned as it is.
func because(kind, cause error) error {
	if cause == nil {
		return kind
	}
	if errors.Is(cause, kind) {
		return cause
	}
	return &reason{kind: kind, cause: cause}
}

type reason struct{ kind, cause error }

func (r *reason) Error() string   { return r.kind.Error() + ": " + r.cause.Error() }
func (r *reason) Unwrap() []error { return []error{r.kind, r.cause} }

// explain turns the backend's raw error into what the caller is told.
func (op *acquireOp) explain(err error) error {
	if op.deadlock != nil {
		return op.deadlock
	}
	ended := op.ctx.Err()
	held := op.recentRefusal()
	outage := isOutage(err)
	if over := op.callerDone(); isHeld(err) || isContextError(err) {
		switch {
		case !over && (op.hold.waited || op.hold.queued) && op.locker.openCtx.Err() != nil:
			return ErrClosed
		case over && (outage || !isHeld(err)) && held != nil:
			// The last attempt was cut short, but an earlier one was answered, maybe one of
			// the call that waited before this one. The engine is there, and another holds
			// the key.
			err, outage = held, false
		}
	}
	switch {
	case outage:
		return because(ErrUnavailable, endedBy(op.ctx, ErrUnavailable, err))
	case isHeld(err) && ended != nil:
		return op.withSubscribeErr(withHolder(ctxEnded(op.ctx), err, held))
	case isHeld(err) && !op.hold.tries():
		return op.withSubscribeErr(withHolder(waitOver(op.hold.policy), err, held))
	case isHeld(err):
		return because(ErrNotAcquired, err)
	}
	for _, kind := range []error{ErrConflict, ErrInvalid, ErrDone, ErrClosed} {
		if errors.Is(err, kind) && !errors.Is(err, ErrIndeterminate) {
			if kind == ErrClosed && op.locker.openCtx.Err() == nil {
				err = because(kind, errBackendClosed)
			}
			return because(kind, endedBy(op.ctx, kind, err))
		}
	}
	if err = driver.Locate(op.entry.backend, err); errors.Is(err, ErrIndeterminate) {
		return because(ErrIndeterminate, endedBy(op.ctx, ErrIndeterminate, err))
	}
	if op.locker.openCtx.Err() != nil { // Close may have cut the attempt short
		return because(ErrClosed, endedBy(op.ctx, ErrClosed, err))
	}
	return because(ErrUnavailable, endedBy(op.ctx, ErrUnavailable, err))
}

// tooLate ends a competition whose grants came too late, and returns its error.
func (l *Locker) tooLate(e *entry, h *hold) error {
	l.wakeNext(e)
	length, item := h.policy.ttl(), "ttl"
	if sticky := h.policy.Sticky; h.tries() && sticky > 0 && sticky < length {
		length, item = sticky, "sticky"
	}
	return because(ErrNotAcquired, errors.New("the lease of "+length.String()+
		" was over when its grant arrived; a longer "+item+" is needed"))
}

// endedBy returns err, which is of kind, so that it matches a context's error if the caller's
// context has ended, and only then. The policy's wait and a client library's timeouts are
// deadlines too, but not the caller's.
func endedBy(ctx context.Context, kind, err error) error {
	switch ended := ctx.Err(); {
	case ended == nil:
		return withoutContext(kind, err)
	case !errors.Is(err, ended):
		return &reason{kind: err, cause: ended}
	}
	return err
}

// withoutContext returns err, which is of kind, such that it matches no context's error.
func withoutContext(kind, err error) error {
	if !isContextError(err) {
		return err
	}
	return because(kind, errors.New(strings.TrimPrefix(err.Error(), kind.Error()+": ")))
}

func isContextError(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// ctxEnded returns the error of a call whose context ended before it had the lock. If the
// context ended because a lock around the call was lost, the error says that. The loss of
// another lock, such as one of another call with the same context, is a cause like others.
func ctxEnded(ctx context.Context) error {
	if cause := context.Cause(ctx); isLost(cause) && Check(ctx) != nil {
		return &reason{kind: cause, cause: ctx.Err()}
	}
	return because(ErrNotAcquired, contextError(ctx))
}

// contextError is the error of ctx, which has ended, with the cause in its text.
func contextError(ctx context.Context) error {
	err := ctx.Err()
	if cause := context.Cause(ctx); cause != err {
		return &reason{kind: err, cause: &hidden{cause}}
	}
	return err
}

// hidden is the cause of another error. errors.Is and errors.As find errors of other packages
// in it, but not the sentinels of this package and of package context: these would not be true
// of the outer error. The text names them.
type hidden struct{ err error }

func (h *hidden) Error() string { return h.err.Error() }

func (h *hidden) Is(target error) bool {
	return !slices.Contains(sentinels, target) && errors.Is(h.err, target)
}

func (h *hidden) As(target any) bool {
	_, ours := target.(**Error)
	return !ours && errors.As(h.err, target)
}

var sentinels = []error{ErrNotAcquired, ErrBusy, ErrUnavailable, ErrIndeterminate, ErrLost, ErrDeadlock, ErrConflict, ErrInvalid,
	ErrDone, ErrNotHeld, ErrClosed, context.Canceled, context.DeadlineExceeded}

// waitOver returns the error of a call whose policy's wait ended before it had the lock.
func waitOver(p *Policy) error {
	return because(ErrNotAcquired, errors.New("waited "+p.Wait.String()))
}

// withHolder adds to err the first of answers that names the holder of the key. The caller's
// own context or policy comes first in the text.
func withHolder(err error, answers ...error) error {
	for _, held := range answers {
		if h := heldError(held); h != nil && h.Holder != "" && errors.Is(err, ErrNotAcquired) {
			return &reason{kind: err, cause: held}
		}
	}
	return err
}

// withSubscribeErr adds to err, the error of a wait, the error of op's last Subscribe if that
// failed: a call that polls may wait longer than calls that are notified.
func (op *acquireOp) withSubscribeErr(err error) error {
	if op.subscribeErr == nil || !errors.Is(err, ErrNotAcquired) {
		return err
	}
	return &reason{kind: err, cause: &reason{errPolled, &hidden{op.subscribeErr}}}
}

var errPolled = errors.New("it could not subscribe to releases, and polled")

// errSilent is the error of a call that waited behind another one of this process, which the
// engine has not answered for answerLimit.
var errSilent = because(ErrUnavailable, errors.New("another call of this process asks for the key, and the engine has not answered for "+answerLimit.String()))

func isHeld(err error) bool { return err != nil && heldError(err) != nil }

// isOutage reports whether err says that the engine is unavailable, and that a waiter goes on.
func isOutage(err error) bool { return errors.Is(err, ErrUnavailable) && isHeld(err) }

// heldError returns the *driver.HeldError in err, or nil. It costs an allocation.
func heldError(err error) (h *driver.HeldError) {
	errors.As(err, &h)
	return h
}

func isLost(err error) bool { return errors.Is(err, ErrLost) }

// saysLost reports whether err says that the lock on key was lost. The loss of another
// lock, which err may wrap too, does not count.
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
