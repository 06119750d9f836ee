package consullock

import (
	"context"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// Processes that wait for a key stand in a queue: each has an entry of its own under
// the queue's prefix, in the order of their creation. The first watches the lock, and
// takes it when it is free; the others watch the entry before theirs. So a release
// wakes one process of ours. What keeps the lock exclusive is the lock alone: that
// nobody is passed is a matter of looking first. A process that has not looked takes
// the lock if it is free, and gives it back if others wait.
//
// Clients of api.Lock stand in no queue: all of them try when the lock is free. Where
// they have used a lock they come first when a process of ours frees it. When one of
// them frees it every process of ours that waits tries as well, whoever is next. So of
// many on both sides each has its share.

const (
	// turnLimit is how long a free lock is left to the process whose turn it is. A
	// process that hangs in the queue costs the others so long, once.
	turnLimit = 500 * time.Millisecond
	// crowdedFor is how long a queue that was seen is taken to be there.
	crowdedFor = time.Second
	// manyCrowded is how many such keys are remembered.
	manyCrowded = 1000
)

// waiter is what one process has at one key while it waits. The Backend's mutex
// guards it.
type waiter struct {
	backend *Backend
	place   engine.Place
	latest  string // the ID of the acquisition that waits
	entry   string // the key of its entry in the queue, "" if it has none
	turn    turn

	target target             // what is watched
	room   bool               // it has room for a watch, until it leaves the queue
	told   *seen              // the lock, which was told to be free; nil if not
	cancel context.CancelFunc // of the queries for target; nil if there were none
}

// waiterOf returns the waiter for a, which is the latest to wait.
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

// enlisted notes that w may have the entry.
func (b *Backend) enlisted(w *waiter, entry string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	w.entry = entry
}

// placeless notes that the process has no place in the queue.
func (b *Backend) placeless(p engine.Place) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if w := b.waiters[p]; w != nil {
		w.leaveLocked()
	}
}

// leaveLocked forgets w.
func (w *waiter) leaveLocked() {
	w.aimLocked(target{})
	if w.room {
		w.backend.endWatch()
	}
	delete(w.backend.waiters, w.place)
}

// leaves reports whether the place of a's process is to be given up with a, and if so
// forgets it. A later acquisition that waits keeps it; and so does one that is about
// to, if a.Queue does not say that there is none.
func (b *Backend) leaves(a *driver.Acquisition) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.waiters[engine.PlaceOf(a)]
	switch {
	case w == nil:
		return a.Queue || a.MayHaveRun // it may have come after the place was given up
	case !a.Queue, a.BegunBefore(w.latest):
		return false
	}
	w.leaveLocked()
	return true
}

// entryOf returns the key of the entry that the process may have in the queue, or "".
func (b *Backend) entryOf(p engine.Place) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if w := b.waiters[p]; w != nil {
		return w.entry
	}
	return ""
}

// expected returns how the lock is, if the process was told that it is free, or how
// it is likely to be: free, with nobody waiting. nil says that it is to be looked at.
func (b *Backend) expected(p engine.Place) *seen {
	b.mu.Lock()
	defer b.mu.Unlock()
	if w := b.waiters[p]; w != nil {
		v := w.told
		w.told = nil
		return v
	}
	if time.Since(b.crowded[p.Key]) < crowdedFor {
		return nil
	}
	return &seen{key: p.Key, assumed: true}
}

// sawQueue remembers whether others wait for the key, as a transaction that took or
// freed it has told.
func (b *Backend) sawQueue(key string, r reply) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case len(r.queue(key)) == 0:
		delete(b.crowded, key)
		return
	case len(b.crowded) >= manyCrowded:
		clear(b.crowded) // which costs a request each
	}
	b.crowded[key] = time.Now()
}

// turn is since when a free lock is left to the entry at the head of its queue.
type turn struct {
	head, lock uint64 // their indexes
	since      time.Time
}

// turnLeft returns how long the head of the queue still has to take its turn, as far as
// the process of a has seen it.
func (b *Backend) turnLeft(a *driver.Acquisition, v *seen, head *api.KVPair) time.Duration {
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

// pass takes the head out of the queue, which has let its turn go by.
func (b *Backend) pass(ctx context.Context, v *seen, head *api.KVPair) error {
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
