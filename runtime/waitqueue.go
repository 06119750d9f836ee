package lock

import (
	"math/rand/v2"
	"time"
)

// waitQueue is a queue of goroutines, first come, first served. The shard's mutex guards it.
type waitQueue struct {
	first, last *waiter
	length      int32
	contested   bool // somebody had to wait: ask for a lease that can be handed on
}

// waiter is one goroutine in the queue of an entry.
type waiter struct {
	hold       *hold
	entry      *entry // that it was given
	next, prev *waiter
	queued     bool
	since      time.Duration // by monotonic
	left       time.Duration // of the lease, as it was handed on
	turn       chan turn     // has room for one; receives exactly one once the waiter is dequeued
}

// pollLimit bounds what a lost notification can cost a waiter.
const pollLimit = time.Second

// pollAfter returns when to try again without a notice: when the holder's lease
// ends, and within a second. Jitter keeps processes from polling in step.
func pollAfter(err error) time.Duration {
	h := heldError(err)
	d := pollLimit - rand.N(pollLimit/10)
	if h != nil && h.RetryAfter > 0 && h.RetryAfter < d {
		// Engines count in milliseconds; one more, and the lease is over.
		return h.RetryAfter + time.Millisecond
	}
	return d
}

// answerLimit is for how long the answer counts that another holds the key, if the engine gives
// none after it. Each waiter asks once in pollLimit, so an older one says that the engine has been
// silent for two seconds.
const answerLimit = 3 * pollLimit

// heldAnswer is what waiters know of an engine where another process holds the key.
type heldAnswer struct {
	err error         // the last answer that named the holder, or the first one; nil of a grant that came too late
	at  time.Duration // of the last answer, by monotonic
}

// note takes down err, by which another still holds the key, unless the engine did not answer,
// or nil for a grant that came too late.
func (e *entry) note(err error) {
	if err != nil && isAway(err) {
		return
	}
	e.shard.mu.Lock()
	defer e.shard.mu.Unlock()
	next := &heldAnswer{err: err, at: monotonic()}
	if err != nil && heldError(err).Holder == "" && e.answer != nil && e.answer.err != nil {
		next.err = e.answer.err
	}
	e.answer = next
}

// held returns the answer, to op or to the waiter before it, by which another holds the key.
func (op *acquireOp) held() error {
	a := op.entry.answer
	if a == nil || monotonic()-a.at > answerLimit {
		return nil
	}
	return a.err
}

// silent reports whether the engine has not answered for answerLimit those that competed for e.
// It counts from when somebody waits for that.
func (e *entry) silent() bool {
	heard := e.since
	if e.answer != nil {
		heard = max(heard, e.answer.at)
	}
	return e.state == busy && heard != 0 && monotonic()-heard > answerLimit
}

// heldOrSilent returns why a call that is busy with e, and has not asked the engine, does not
// get it.
func (e *entry) heldOrSilent() error {
	if e.silent() {
		return errSilent
	}
	return errHeld
}

// rejectTriesLocked answers every Try in the queue: the key is held by another.
func (e *entry) rejectTriesLocked() {
	for w := e.first; w != nil; {
		next := w.next
		if w.hold.tries() {
			e.removeLocked(w)
			w.turn <- rejected
		}
		w = next
	}
}

// waitingLocked returns how many calls wait for e: in the queue, or at the engine.
func (e *entry) waitingLocked() int {
	switch g := e.group; {
	case g != nil:
		return int(e.length) + g.waiting
	case e.elsewhere:
		return int(e.length) + 1
	}
	return int(e.length)
}

func (q *waitQueue) pushLocked(w *waiter) {
	w.queued, q.contested = true, true
	w.prev = q.last
	if q.last == nil {
		q.first = w
	} else {
		q.last.next = w
	}
	q.last = w
	q.length++
}

func (q *waitQueue) removeLocked(w *waiter) {
	if w.prev == nil {
		q.first = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		q.last = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.next, w.prev, w.queued = nil, nil, false
	q.length--
}

// loaded is when monotonic was 0.
var loaded = time.Now()

// monotonic reads the monotonic clock, which takes half as long as to read the wall clock too.
func monotonic() time.Duration { return time.Since(loaded) }
