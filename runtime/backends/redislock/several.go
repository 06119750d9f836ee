package redislock

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// What a Locker takes or frees for one call is sent in as few commands as there can be. Each
// lock has a call of its own all the same (see together.lua): only the first attempts are
// made together, and what they leave open goes on as it does for a lock by itself.

// mostTogether is how many calls take a server little beside failoverTimeout.
const mostTogether = 8 * batchLimit

// AcquireAll implements [driver.BatchAcquirer].
func (b *Backend) AcquireAll(ctx context.Context, as []*driver.Acquisition) ([]driver.Lease, []error) {
	leases, errs := make([]driver.Lease, len(as)), make([]error, len(as))
	ks, began := make([]keys, len(as)), make([]*call, len(as))
	for i, a := range as {
		if ks[i], errs[i] = vet(a); errs[i] != nil || b.unusable != nil || b.options.Replicas > 0 || a.Mode.Kind != 0 || a.Queue {
			continue // alone
		}
		began[i] = b.acquire(ks[i], a, nil)
	}
	b.each(ctx, began, func(i int) {
		if began[i] == nil {
			leases[i], errs[i] = b.Acquire(ctx, as[i])
			return
		}
		l, held, err := b.attemptAcquire(ctx, ks[i], as[i], nil, began[i])
		if held != nil {
			err = held
		}
		if errs[i] = err; err == nil {
			leases[i] = b.subscriber.hold(l)
		}
	})
	return leases, errs
}

// ReleaseAll implements [driver.BatchReleaser].
func (b *Backend) ReleaseAll(ctx context.Context, leases []driver.Lease, lasts []uint64) []error {
	errs, began := make([]error, len(leases)), make([]*call, len(leases))
	for i, one := range leases {
		l, ok := one.(*lease)
		if !ok {
			continue // of another kind
		}
		began[i] = l.freeing(lasts[i])
	}
	b.each(ctx, began, func(i int) {
		if l, ok := leases[i].(*lease); ok {
			errs[i] = l.release(ctx, began[i])
		} else {
			errs[i] = leases[i].Release(ctx, lasts[i])
		}
	})
	return errs
}

// each makes the first attempts of began, those for one server together, and calls f with each
// index: at the same time where there is more to ask, or there is no call.
func (b *Backend) each(ctx context.Context, began []*call, f func(i int)) {
	b.begin(ctx, began)
	var work sync.WaitGroup
	for i, one := range began {
		if one != nil && one.failed == nil {
			f(i)
		} else {
			work.Go(func() { f(i) })
		}
	}
	work.Wait()
}

// begin makes the first attempts of those of calls that are not nil: those for one server
// together, and those for several at the same time.
func (b *Backend) begin(ctx context.Context, calls []*call) {
	servers := map[*batcher][]*call{}
	var err error
	for _, c := range calls {
		if c == nil {
			continue
		}
		if err == nil { // else each would ask for the way in vain, one after the other
			c.batcher, err = b.router.batcherFor(ctx, c.keys[0], route{}, false)
		}
		if c.failed = err; err == nil {
			servers[c.batcher] = append(servers[c.batcher], c)
		}
	}
	var work sync.WaitGroup
	for batcher, some := range servers {
		work.Go(func() { b.beginAt(ctx, batcher, some) })
	}
	work.Wait()
}

// beginAt makes first attempts at one server.
func (b *Backend) beginAt(ctx context.Context, batcher *batcher, calls []*call) {
	if batcher.bySlot { // so that those of a slot stand in the same batches
		slices.SortStableFunc(calls, func(x, y *call) int { return slot(x.keys[0]) - slot(y.keys[0]) })
	}
	first := calls[0]
	ctx, stop := b.router.withFailoverTimeout(ctx, first, failoverTimeout*time.Duration(1+len(calls)/mostTogether))
	defer stop()
	if first.takes {
		batcher.warm(b.life)
	}
	if first.takes && !batcher.asked.Load() { // it finds out whether the others may go together
		first.failed = batcher.do(ctx, first)
		calls = calls[1:]
	}
	batcher.of(first).put(ctx, calls...)
	for _, c := range calls {
		c.failed = c.wait(ctx)
	}
}
