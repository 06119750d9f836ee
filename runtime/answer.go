package lock

import (
	"context"
	"errors"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// answerLimit is for how long the answer counts that another holds the key, if the engine gives
// none after it. Each waiter asks once in pollLimit, so an older one says that the engine has been
// silent for two seconds.
const answerLimit = 3 * pollLimit

// heldAnswer is what waiters know of an engine where another process holds the key.
type heldAnswer struct {
	err error         // the last answer that named the holder, or the first one
	at  time.Duration // of the last answer, by monotonic
}

// contender is the call that waits at the engine. The shard's mutex guards it.
type contender struct {
	hold  *hold
	since time.Duration // by monotonic
	told  error         // last: another holds the key, or the engine is away
}

// note is noteLocked under the mutex.
func (e *entry) note(err error) {
	e.shard.mu.Lock()
	defer e.shard.mu.Unlock()
	e.noteLocked(err)
}

// noteLocked takes down err, which the one that competes was told, as an answer if it is one.
func (e *entry) noteLocked(err error) {
	e.competing.told = err
	switch now := monotonic(); {
	case isAway(err):
	case e.answer == nil || heldError(err).Holder != "":
		e.answer = &heldAnswer{err: err, at: now}
	default:
		e.answer.at = now
	}
}

// askLocked notes that the engine is asked for the key. Of requests that were cut off, the
// first one counts.
func (e *entry) askLocked() {
	if e.asked == 0 {
		e.asked = monotonic()
	}
}

// ask asks the engine. It notes an answer that is no lease.
func (op *acquireOp) ask(ctx context.Context) (driver.Lease, error) {
	lease, err := op.entry.backend.Acquire(ctx, op.acquisition)
	if err != nil {
		op.entry.heard(err)
	}
	return lease, err
}

// askAgain is ask for a call behind which others may wait.
func (op *acquireOp) askAgain(ctx context.Context) (driver.Lease, error) {
	e := op.entry
	e.shard.mu.Lock()
	e.askLocked()
	e.shard.mu.Unlock()
	return op.ask(ctx)
}

// grantedLate notes that the engine has answered, and is asked once more.
func (e *entry) grantedLate() {
	e.shard.mu.Lock()
	defer e.shard.mu.Unlock()
	e.asked = monotonic()
}

// heard notes that the engine has answered by err, unless that is no answer.
func (e *entry) heard(err error) {
	if isContextError(err) || isAway(err) || errors.Is(err, ErrIndeterminate) {
		return
	}
	e.shard.mu.Lock()
	defer e.shard.mu.Unlock()
	e.asked = 0
}

// awayLocked returns why nobody knows whether another holds the key: the one that competes was
// told so last, or the engine has not answered for answerLimit.
func (e *entry) awayLocked() error {
	if c := e.competing; c != nil && isAway(c.told) {
		return c.told
	}
	if e.state == busy && e.asked != 0 && monotonic()-e.asked > answerLimit {
		return errSilent
	}
	return nil
}

// refusalLocked is what a Try is told while another call of this process waits at the engine or
// holds the key.
func (e *entry) refusalLocked() error {
	if away := e.awayLocked(); away != nil {
		return withoutContext(ErrUnavailable, away)
	}
	return because(ErrNotAcquired, errHeld)
}

// held returns the answer, to op or to the waiter before it, by which another holds the key.
func (op *acquireOp) held() error {
	a := op.entry.answer
	if a == nil || monotonic()-a.at > answerLimit {
		return nil
	}
	return a.err
}

// heldOrAway returns why a call that is busy with e, and has not asked the engine, does not get it.
func (e *entry) heldOrAway() error {
	e.shard.mu.Lock()
	defer e.shard.mu.Unlock()
	if away := e.awayLocked(); away != nil {
		return away
	}
	return errHeld
}
