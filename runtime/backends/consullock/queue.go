package consullock

import (
	"context"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// Processes that wait for a key have an entry each under the queue's prefix, in the order of
// their creation. The first watches the lock, and takes it when it is free; the others watch
// the entry before theirs. So a release wakes one process of ours. The lock alone keeps the
// lock exclusive; the queue keeps its order because a process reads it before it takes the
// lock. A process that has not read it gives the lock back if others wait.
//
// Clients of api.Lock have no entries: all of them try when the lock is free. If they have used a
// lock they come first when a process of ours frees it. When one of them frees it every process
// of ours that waits tries as well, not only the next. So both sides get the lock.

const (
	// turnLimit is how long a free lock is left to the first process in the queue. If that
	// hangs, it costs the others so long, once.
	turnLimit = 500 * time.Millisecond
	// contendedFor is how long a queue that had entries is assumed to have some.
	contendedFor = time.Second
	// maxContended is how many such keys are remembered.
	maxContended = 1000
)

// waiter is one process's queue entry for one key, and its watch, while it waits. Backend.mu
// guards it.
type waiter struct {
	backend *Backend
	place   engine.Place
	latest  string // the ID of the acquisition that waits
	entry   string // the key of its entry in the queue, "" if it has none
	turn    turn

	target  target             // what is watched
	hasSlot bool               // it has a watch slot, which it keeps until it leaves the queue
	freed   *view              // the lock as the watch saw it become free, or nil
	cancel  context.CancelFunc // ends the queries for target; nil if there were none
}

// waiterOf returns the waiter of a's place, and makes a the latest acquisition that waits there.
func (b *Backend) waiterOf(a *driver.Acquisition) *waiter {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := engine.PlaceOf(a)
	w := b.waiters[p]
	if w == nil {
		w = &waiter{backend: b, place: p}
		b.waiters[p] = w
	}
	w.latest = a.ID
	return w
}

// setEntry notes the key of the entry that w may have in the queue.
func (b *Backend) setEntry(w *waiter, entry string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	w.entry = entry
}

// forgetWaiter notes that the process has no entry in the queue.
func (b *Backend) forgetWaiter(p engine.Place) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if w := b.waiters[p]; w != nil {
		w.forgetLocked()
	}
}

// forgetLocked ends w's watch, and forgets w.
func (w *waiter) forgetLocked() {
	w.setTargetLocked(target{})
	if w.hasSlot {
		w.backend.freeWatchSlot()
	}
	delete(w.backend.waiters, w.place)
}

// leaveQueue reports whether an undo of a deletes the entry of its process, and if so forgets the
// waiter. A later acquisition that waits keeps the entry, and so does one that is about to wait:
// only a.Queue says that there is none.
func (b *Backend) leaveQueue(a *driver.Acquisition) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.waiters[engine.PlaceOf(a)]
	switch {
	case w == nil:
		return a.Queue || a.MayHaveRun // the entry may have arrived after the waiter was forgotten
	case !a.Queue, a.BegunBefore(w.latest):
		return false
	}
	w.forgetLocked()
	return true
}

// entryKey returns the key of the entry that the process may have in the queue, or "".
func (b *Backend) entryKey(p engine.Place) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if w := b.waiters[p]; w != nil {
		return w.entry
	}
	return ""
}

// expected returns the lock as the process's watch saw it become free or, if the process does not
// wait, as it probably is: free, with nobody waiting. nil says that it must be read.
func (b *Backend) expected(p engine.Place) *view {
	b.mu.Lock()
	defer b.mu.Unlock()
	if w := b.waiters[p]; w != nil {
		v := w.freed
		w.freed = nil
		return v
	}
	if time.Since(b.contended[p.Key]) < contendedFor {
		return nil
	}
	return &view{key: p.Key, assumed: true}
}

// rememberQueue remembers whether others wait for the key, as r has read.
func (b *Backend) rememberQueue(key string, r reply) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case len(r.queue(key)) == 0:
		delete(b.contended, key)
		return
	case len(b.contended) >= maxContended:
		clear(b.contended) // costs each key one request more
	}
	b.contended[key] = time.Now()
}

// turn says since when a free lock has been left to the head of its queue.
type turn struct {
	head, lock uint64 // their indexes
	since      time.Time
}

// turnLeft returns how long the head of the queue still has to take the lock, counted from when the
// process of a first saw it as the head of a free lock.
func (b *Backend) turnLeft(a *driver.Acquisition, v *view, head *api.KVPair) time.Duration {
	if !a.Queue {
		return turnLimit
	}
	w := b.waiterOf(a)
	b.mu.Lock()
	defer b.mu.Unlock()
	if w.turn.head != head.ModifyIndex || w.turn.lock != v.index() {
		w.turn = turn{head.ModifyIndex, v.index(), time.Now()}
	}
	return turnLimit - time.Since(w.turn.since)
}

// removeHead deletes the head of the queue, which has not taken the lock in time.
func (b *Backend) removeHead(ctx context.Context, v *view, head *api.KVPair) error {
	_, err := b.write(ctx, ops{
		unchanged(v.key, v.index()),
		unchanged(head.Key, head.ModifyIndex),
		kv(api.KVDelete, api.KVTxnOp{Key: head.Key}),
	})
	return err
}

// processOf returns the process that an entry stands for.
func processOf(entry *api.KVPair) string {
	process, _, _ := strings.Cut(entry.Key[strings.LastIndexByte(entry.Key, '/')+1:], ".")
	return process
}
