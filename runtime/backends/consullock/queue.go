package consullock

import (
	"cmp"
	"context"
	"slices"
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
	// manyMemories is how many keys' turns and queues are remembered before old ones go.
	manyMemories = 1000
)

// place is where one process waits for one key.
type place struct{ key, process string }

func placeOf(a *driver.Acquisition) place { return place{a.Key, engine.Process(a.ID)} }

// waiter is what one process has at one key while it waits. The Backend's mutex
// guards it.
type waiter struct {
	backend *Backend
	place   place
	latest  string   // the ID of the acquisition that waits
	entry   string   // the key of its entry in the queue, "" if it has none
	session *session // that holds the entry
	watching
}

// waiterOf returns the waiter for a, which is the latest to wait.
func (b *Backend) waiterOf(a *driver.Acquisition) *waiter {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.waiterLocked(placeOf(a))
	w.latest = a.ID
	return w
}

func (b *Backend) waiterLocked(p place) *waiter {
	w := b.waiters[p]
	if w == nil {
		w = &waiter{backend: b, place: p, watching: watching{changed: make(chan struct{}, 1)}}
		b.waiters[p] = w
	}
	return w
}

// forgetLocked forgets w if it has no place and nobody listens.
func (w *waiter) forgetLocked() {
	if w.latest == "" && w.stop == nil && w.backend.waiters[w.place] == w {
		delete(w.backend.waiters, w.place)
	}
}

// enlisted notes that w may have the entry.
func (b *Backend) enlisted(w *waiter, entry string, s *session) {
	b.mu.Lock()
	defer b.mu.Unlock()
	w.entry, w.session = entry, s
}

// took notes that the process has the lock, and no place in the queue.
func (b *Backend) took(p place) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if w := b.waiters[p]; w != nil {
		w.leaveLocked()
	}
}

func (w *waiter) leaveLocked() {
	w.latest, w.entry, w.session = "", "", nil
	w.aimLocked(target{})
	w.forgetLocked()
}

// leaves reports whether the place of a's process is to be given up with a, and if so
// forgets it. A later acquisition that waits keeps it; and so does one that is about
// to, if a.Queue does not say that there is none.
func (b *Backend) leaves(a *driver.Acquisition) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.waiters[placeOf(a)]
	switch {
	case w == nil:
		return a.Queue || a.MayHaveRun // it may have come after the place was given up
	case !a.Queue, w.latest != "" && a.BegunBefore(w.latest):
		return false
	}
	w.leaveLocked()
	return true
}

// entriesOf returns the keys of the entries that the process may have in the queue.
func (b *Backend) entriesOf(p place, v *seen) (keys []string) {
	for _, e := range v.entries(p.process) {
		keys = append(keys, e.Key)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if w := b.waiters[p]; w != nil && w.entry != "" && !slices.Contains(keys, w.entry) {
		keys = append(keys, w.entry)
	}
	return keys
}

// expected returns how the lock is, if the process was told that it is free, or how
// it is likely to be: free, with nobody waiting. nil says that it is to be looked at.
func (b *Backend) expected(p place) *seen {
	b.mu.Lock()
	defer b.mu.Unlock()
	if w := b.waiters[p]; w != nil {
		v := w.told
		w.told = nil
		return v
	}
	if time.Since(b.crowded[p.key]) < crowdedFor {
		return nil
	}
	return &seen{key: p.key, assumed: true}
}

// sawQueue remembers whether others wait for the key, as a transaction that took or
// freed it has told.
func (b *Backend) sawQueue(key string, r *reply) {
	waits := len(r.queue(key)) > 0
	b.mu.Lock()
	defer b.mu.Unlock()
	if !waits {
		delete(b.crowded, key)
		return
	}
	if len(b.crowded) >= manyMemories {
		for key, at := range b.crowded {
			if time.Since(at) > crowdedFor {
				delete(b.crowded, key)
			}
		}
	}
	b.crowded[key] = time.Now()
}

// turn is since when a free lock is left to the entry at the head of its queue, as
// seen from here.
type turn struct {
	head  uint64 // its index
	lock  uint64 // that of the lock's key
	since time.Time
}

// turnLeft returns how long the head of the queue still has to take its turn.
func (b *Backend) turnLeft(v *seen, head *api.KVPair) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.turns[v.key]
	if t.head != head.ModifyIndex || t.lock != v.index() {
		if len(b.turns) >= manyMemories {
			for key, t := range b.turns {
				if time.Since(t.since) > time.Minute {
					delete(b.turns, key)
				}
			}
		}
		t = turn{head.ModifyIndex, v.index(), time.Now()}
		b.turns[v.key] = t
	}
	return turnLimit - time.Since(t.since)
}

func (b *Backend) noTurn(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.turns, key)
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

// queueOf returns those of pairs that are entries of key's queue, in their order.
func queueOf(key string, pairs []*api.KVPair) (queue []*api.KVPair) {
	for _, p := range pairs {
		if strings.HasPrefix(p.Key, queuePrefix(key)) {
			queue = append(queue, p)
		}
	}
	slices.SortFunc(queue, func(a, b *api.KVPair) int { return cmp.Compare(a.CreateIndex, b.CreateIndex) })
	return queue
}

// processOf returns the process that an entry stands for.
func processOf(entry *api.KVPair) string {
	process, _, _ := strings.Cut(entry.Key[strings.LastIndexByte(entry.Key, '/')+1:], ".")
	return process
}
