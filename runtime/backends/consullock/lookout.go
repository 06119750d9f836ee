package consullock

import (
	"context"
	"slices"
	"time"

	"github.com/hashicorp/consul/api"
)

// A release that has to ask first whether somebody waits takes a third longer, or
// twice as long on a connection that has been idle. So leases that are held for a
// while are looked at meanwhile, many at a time, ever more rarely.

const (
	// contested is how old a lease is when it is first looked at, and how long what
	// was seen of an empty queue is taken for true. Leases that are over sooner pay
	// nothing.
	contested = 10 * time.Millisecond
	// lookAgain is by how much older a lease is at each look.
	lookAgain = 4
	// lookNoMore is how old it is when its release may as well ask; and how long what
	// was seen of a queue that others stand in is taken for true.
	lookNoMore = 500 * time.Millisecond
)

// lookout has the queue of l looked at while it is held.
func (b *Backend) lookout(l *lease) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.young[l] = contested
	if !b.looking && !b.shut {
		b.looking = true
		b.lookSoon()
	}
}

func (b *Backend) noLookout(l *lease) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.young, l)
}

// lookSoon looks at the leases that are due a little later. b is locked.
func (b *Backend) lookSoon() {
	time.AfterFunc(contested, func() { b.background(b.lookAround) })
}

func (b *Backend) lookAround(ctx context.Context) {
	var due []*lease
	b.mu.Lock()
	for l, age := range b.young {
		if time.Since(l.began) < age {
			continue
		}
		due = append(due, l)
		if b.young[l] = age * lookAgain; age*lookAgain > lookNoMore {
			delete(b.young, l)
		}
	}
	b.mu.Unlock()
	for some := range slices.Chunk(due, checkedAtOnce) {
		b.lookAt(ctx, some)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.looking = len(b.young) > 0; b.looking {
		b.lookSoon()
	}
}

// lookAt has leases know their queues.
func (b *Backend) lookAt(ctx context.Context, leases []*lease) {
	var t ops
	for _, l := range leases {
		t = append(t, kv(api.KVGetOrEmpty, api.KVTxnOp{Key: queueKey(l.key)}))
	}
	now := time.Now()
	reply, err := b.read(ctx, t, false)
	if err != nil || len(reply.Results) != len(t) {
		return
	}
	for i, l := range leases {
		l.mu.Lock()
		l.queue, l.looked = queueOf(reply.Results[i].KV), now
		l.mu.Unlock()
	}
}
