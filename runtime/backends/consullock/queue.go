package consullock

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"

	lock "github.com/lockgen/lockgen/runtime"
)

// Processes that wait for a key stand in a queue, which is a key beside the
// lock: their names, one a line, in the order of their coming. Nobody else of
// this package takes the lock before them, so that processes take turns. What
// keeps the lock exclusive is the lock alone.
type queue struct {
	names []string
	index uint64 // of the key that holds it, 0 if there is none
}

const (
	// turnLimit is how long a free lock is kept for the process whose turn it
	// is. A process that died in the queue costs the others so long, once.
	turnLimit = 500 * time.Millisecond
	// turnWithin is when those behind look again whether the turn was taken. A
	// blocking query does not tell of a lock that was taken and freed while it
	// looked away: absent before and after is no change to Consul.
	turnWithin = 20 * time.Millisecond
	// longestQueue bounds the size of the key.
	longestQueue = 1000
)

// process returns what names the Locker of an acquisition in queues.
func process(id string) string {
	name, _, _ := strings.Cut(id, ":")
	return name
}

func queueOf(p *api.KVPair) queue {
	q := queue{index: p.ModifyIndex}
	if len(p.Value) > 0 {
		q.names = strings.Split(string(p.Value), "\n")
	}
	return q
}

func (q queue) head() string {
	if len(q.names) == 0 {
		return ""
	}
	return q.names[0]
}

// without returns the operations by which name leaves the queue of key, if it
// is still as it was seen.
func (q queue) without(key, name string) ops {
	at := queueKey(key)
	t := ops{unchanged(at, q.index)}
	rest := slices.DeleteFunc(slices.Clone(q.names), func(other string) bool { return other == name })
	switch {
	case q.index == 0 || len(rest) == len(q.names) && len(rest) > 0:
		return t
	case len(rest) == 0:
		return append(t, kv(api.KVDelete, api.KVTxnOp{Key: at}))
	}
	return append(t, kv(api.KVSet, api.KVTxnOp{Key: at, Value: []byte(strings.Join(rest, "\n"))}))
}

// enlist puts name at the end of the queue that was seen. The queue is locked by
// the session of whoever begins it, and goes with it: a queue is no heirloom,
// those that wait stand in it again when they try next.
func (b *Backend) enlist(ctx context.Context, v *seen, name string, s *session) error {
	if slices.Contains(v.queue.names, name) || len(v.queue.names) >= longestQueue {
		return nil
	}
	at := queueKey(v.key)
	pair := api.KVTxnOp{Key: at, Value: []byte(strings.Join(append(slices.Clone(v.queue.names), name), "\n"))}
	t := ops{unchanged(at, v.queue.index)}
	if v.queue.index == 0 {
		pair.Session = s.id
		t = append(t, kv(api.KVLock, pair))
	} else {
		t = append(t, kv(api.KVSet, pair))
	}
	_, err := b.write(ctx, t)
	return err
}

// leave takes name out of the queue that was seen.
func (b *Backend) leave(ctx context.Context, v *seen, name string) error {
	if !slices.Contains(v.queue.names, name) {
		return nil
	}
	t := v.queue.without(v.key, name)
	if _, err := b.write(ctx, t); err != nil {
		return err
	}
	*v = seen{key: v.key, pair: v.pair} // what is left of the queue is no longer known
	return nil
}

// turn is how a free lock was kept for one process, as seen from here.
type turn struct {
	name  string
	index uint64 // of the lock's key as it is free
	since time.Time
}

// overdue reports whether the head of the queue has let its turn go by, and how
// long it still has if not.
func (b *Backend) overdue(v *seen) (left time.Duration, over bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.turns[v.key]
	if t.name != v.queue.head() || t.index != v.index() {
		t = turn{name: v.queue.head(), index: v.index(), since: time.Now()}
		b.turns[v.key] = t
	}
	left = turnLimit - time.Since(t.since)
	if left > 0 {
		return left, false
	}
	delete(b.turns, v.key)
	return 0, true
}

func (b *Backend) noTurn(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.turns, key)
}

// heldFor is the answer that the lock is another's for the time being.
func heldFor(d time.Duration) error { return &lock.HeldError{For: d} }
