package lock

import (
	"context"
	"errors"
)

// Token returns the fencing token of the innermost lock that ctx owns. Tokens
// rise strictly per key, over all processes and hand-offs; a re-entry keeps its
// hold's. Write it beside the data and refuse a lower one: that alone stops a
// holder that was paused past its lease. It returns (0, false) when ctx owns
// nothing, and when the innermost acquisition took several locks, or those of
// [Requests]: name one with [TokenOf].
func Token(ctx context.Context) (token uint64, ok bool) {
	f := owned(ctx)
	if f == nil || f.several || f.returned() {
		return 0, false
	}
	return f.hold().token, true
}

// TokenOf returns the fencing token of the lock on key that ctx owns. backend names
// the backends that count, "" for the Locker's own; without one all do, and the
// innermost lock on key is meant.
func TokenOf(ctx context.Context, key string, backend ...string) (token uint64, ok bool) {
	f := owned(ctx).findAt(key, backend)
	if f == nil || f.returned() {
		return 0, false
	}
	return f.hold().token, true
}

// Owns reports whether ctx owns a live lock on key: a call under ctx is inside
// the method, the method has not returned, and the lease is not over. backend is as
// for [TokenOf].
func Owns(ctx context.Context, key string, backend ...string) bool {
	f := owned(ctx).findAt(key, backend)
	return f != nil && f.check() == nil
}

// Check returns nil while every lock of the chain that ctx is inside of is
// held, and an error that wraps [ErrLost] otherwise. It compares clocks on the
// spot and asks no one, so it is right at the instant of the call even after a
// pause of the process, when no timer has fired yet. What happens between the
// call and the write that follows is the fencing token's job. For a context
// outside of any lock it returns nil.
//
// It costs a reading of the clock. A sleep of the machine shows by the wall clock, which
// then jumps against the monotonic clock; only after a jump of a millisecond or more does
// Check make the system call that tells how long the sleep was. A wall clock that is set
// back by as much as the machine has slept hides a sleep, for 10 s at most while a
// Locker holds locks.
func Check(ctx context.Context) error {
	// Not owned(): a copy made by context.WithoutCancel owns nothing, but code
	// that runs under it must still learn of the loss.
	f, _ := ctx.Value(frameKey).(*frame)
	for ; f != nil; f = f.outer {
		if f.closed.Load() {
			return f.hold().lostError("check", errReturned)
		}
		if err := f.hold().check(); err != nil {
			return f.hold().lostError("check", err)
		}
	}
	return nil
}

// Require returns nil if ctx owns a live lock on each of keys; without keys, if it owns any
// lock and all of its chain are live. Code that must not run without its lock calls it where
// [Check] does not do: outside of any lock that is nil. The error wraps [ErrNotHeld] where
// ctx is under no lock on a key, and [ErrLost] where the lock was lost. It asks no one.
func Require(ctx context.Context, keys ...string) error {
	innermost := owned(ctx)
	if len(keys) == 0 {
		if innermost == nil {
			return &Error{Op: "require", Err: because(ErrNotHeld, errors.New("the context is under no lock at all"))}
		}
		return Check(ctx)
	}
	for _, key := range keys {
		f := innermost.findAt(key, nil)
		if f == nil {
			return &Error{Op: "require", Key: key, Err: ErrNotHeld}
		}
		if err := f.check(); err != nil {
			return f.hold().lostError("require", err)
		}
	}
	return nil
}

// Detach returns ctx without the locks that it owns: a call under it acquires
// afresh, and [Check] and [Token] see nothing. Deadline, cancellation and other
// values stay.
func Detach(ctx context.Context) context.Context {
	return &ownedContext{Context: ctx}
}

// ownedContext is the context that a locked method receives.
type ownedContext struct {
	context.Context
	frame *frame // nil after Detach
}

type frameKeyType struct{}

// frameKey is compared on every ctx.Value of a locked method, so it is boxed once.
var frameKey any = frameKeyType{}

func (c *ownedContext) Value(key any) any {
	if key == frameKey {
		return c.frame
	}
	return c.Context.Value(key)
}

// owned returns the innermost frame that ctx owns, or nil. A context that was
// cut off, as by context.WithoutCancel, would not hear of a loss, so it owns nothing.
func owned(ctx context.Context) *frame {
	f, _ := ctx.Value(frameKey).(*frame)
	if f == nil || !endsWith(ctx, f.ctx) {
		return nil
	}
	return f
}
