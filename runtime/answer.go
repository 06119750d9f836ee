package lock

import (
	"context"
	"errors"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// answerLimit is how long the engine's answer "another holds the key" counts. A waiter asks
// once in pollLimit, so after answerLimit the engine has been silent for two seconds.
const answerLimit = 3 * pollLimit

// engineRefusal is the engine's answer that another process holds the key.
type engineRefusal struct {
	err error         // the last answer that named the holder, else the first one
	at  time.Duration // of the last answer, by monotonic
}

// contender is the call that waits at the engine. The shard's mutex guards it.
type contender struct {
	hold        *hold
	since       time.Duration // by monotonic
	lastRefusal error         // another holds the key, or the engine is unavailable
}

// noteRefusal is noteRefusalLocked under the mutex.
func (e *entry) noteRefusal(err error) {
	e.shard.mu.Lock()
	defer e.shard.mu.Unlock()
	e.noteRefusalLocked(err)
}

// noteRefusalLocked keeps err, the refusal of an attempt. An outage says nothing about the key,
// so the last answer about it stays.
func (e *entry) noteRefusalLocked(err error) {
	e.competing.lastRefusal = err
	switch now := monotonic(); {
	case isOutage(err):
	case e.refusal == nil || heldError(err).Holder != "":
		e.refusal = &engineRefusal{err: err, at: now}
	default:
		e.refusal.at = now
	}
}

// noteRequestLocked notes that the engine is asked for the key. If an earlier request has no
// answer yet, its time stays.
func (e *entry) noteRequestLocked() {
	if e.unansweredSince == 0 {
		e.unansweredSince = monotonic()
	}
}

// attempt asks the engine for the lease. If that fails, it notes whether the engine has answered.
func (op *acquireOp) attempt(ctx context.Context) (driver.Lease, error) {
	lease, err := op.entry.backend.Acquire(ctx, op.acquisition)
	if err != nil {
		op.entry.noteAnswer(err)
	}
	return lease, err
}

// attemptAgain is attempt, and notes when it begins: other calls may wait behind this one.
func (op *acquireOp) attemptAgain(ctx context.Context) (driver.Lease, error) {
	e := op.entry
	e.shard.mu.Lock()
	e.noteRequestLocked()
	e.shard.mu.Unlock()
	return op.attempt(ctx)
}

// noteLateGrant notes that the engine has answered, and is asked once more.
func (e *entry) noteLateGrant() {
	e.shard.mu.Lock()
	defer e.shard.mu.Unlock()
	e.unansweredSince = monotonic()
}

// noteAnswer notes that the engine has answered, unless err says that it has not.
func (e *entry) noteAnswer(err error) {
	if isContextError(err) || isOutage(err) || errors.Is(err, ErrIndeterminate) {
		return
	}
	e.shard.mu.Lock()
	defer e.shard.mu.Unlock()
	e.unansweredSince = 0
}

// outageLocked returns an error if nobody knows whether another holds the key: the last attempt
// found the engine unavailable, or the engine has not answered for answerLimit.
func (e *entry) outageLocked() error {
	if c := e.competing; c != nil && isOutage(c.lastRefusal) {
		return c.lastRefusal
	}
	if e.state == busy && e.unansweredSince != 0 && monotonic()-e.unansweredSince > answerLimit {
		return errSilent
	}
	return nil
}

// refusalLocked returns the error of a Try while another call of this process waits at the engine
// or holds the key.
func (e *entry) refusalLocked() error {
	if outage := e.outageLocked(); outage != nil {
		return withoutContext(ErrUnavailable, outage)
	}
	if e.state == held {
		return because(ErrNotAcquired, errHeldHere)
	}
	return because(ErrNotAcquired, errHeld)
}

// recentRefusal returns the engine's last answer, to op or to the waiter before it, that another
// holds the key; nil if that is older than answerLimit.
func (op *acquireOp) recentRefusal() error {
	a := op.entry.refusal
	if a == nil || monotonic()-a.at > answerLimit {
		return nil
	}
	return a.err
}

// heldOrOutage returns the error of a call that is busy with e, and ended before it asked the engine.
func (e *entry) heldOrOutage() error {
	e.shard.mu.Lock()
	defer e.shard.mu.Unlock()
	if outage := e.outageLocked(); outage != nil {
		return outage
	}
	return errHeld
}
