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
	refusal    error         // why it was rejected
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

// rejectTriesLocked answers every Try in the queue.
func (e *entry) rejectTriesLocked() {
	for w := e.first; w != nil; {
		next := w.next
		if w.hold.policy.Try {
			e.removeLocked(w)
			w.refusal = e.refusalLocked()
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
	case e.competing != nil:
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

// monotonicStart is when monotonic was 0.
var monotonicStart = time.Now()

// monotonic reads the monotonic clock, which takes half as long as to read the wall clock too.
func monotonic() time.Duration { return time.Since(monotonicStart) }
