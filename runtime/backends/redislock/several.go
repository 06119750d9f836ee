package redislock

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// The first attempts at several locks are sent in as few commands as possible. Each lock has a
// call of its own (see together.lua): where its first attempt did not settle it, it goes on as
// a lock by itself does.

// mostTogether is how many calls a server does in much less than failoverTimeout.
const mostTogether = 8 * batchLimit

// AcquireAll implements [driver.BatchAcquirer].
func (b *Backend) AcquireAll(ctx context.Context, as []*driver.Acquisition) ([]driver.Lease, []error) {
	leases, errs := make([]driver.Lease, len(as)), make([]error, len(as))
	ks, firsts := make([]keys, len(as)), make([]*call, len(as))
	for i, a := range as {
		if ks[i], errs[i] = vet(a); errs[i] != nil || b.unusable != nil || b.options.Replicas > 0 || a.Mode.Kind != 0 || a.Queue {
			continue // by Acquire
		}
		firsts[i] = b.acquire(ks[i], a, nil)
	}
	b.forEach(ctx, firsts, func(i int) {
		if firsts[i] == nil {
			leases[i], errs[i] = b.Acquire(ctx, as[i])
			return
		}
		l, held, err := b.attemptAcquire(ctx, ks[i], as[i], nil, firsts[i])
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
	errs, firsts := make([]error, len(leases)), make([]*call, len(leases))
	for i, one := range leases {
		l, ok := one.(*lease)
		if !ok {
			continue // of another kind
		}
		firsts[i] = l.releaseCall(lasts[i])
	}
	b.forEach(ctx, firsts, func(i int) {
		if l, ok := leases[i].(*lease); ok {
			errs[i] = l.release(ctx, firsts[i])
		} else {
			errs[i] = leases[i].Release(ctx, lasts[i])
		}
	})
	return errs
}

// forEach makes the first attempts firsts, those for one server together, and calls f with each
// index: in a goroutine where the attempt failed, or there is none, because f then does I/O.
func (b *Backend) forEach(ctx context.Context, firsts []*call, f func(i int)) {
	b.sendFirst(ctx, firsts)
	var work sync.WaitGroup
	for i, one := range firsts {
		if one != nil && one.failed == nil {
			f(i)
		} else {
			work.Go(func() { f(i) })
		}
	}
	work.Wait()
}

// sendFirst makes those of the first attempts that are not nil: those for one server together,
// and those for several servers at the same time.
func (b *Backend) sendFirst(ctx context.Context, calls []*call) {
	servers := map[*batcher][]*call{}
	var err error
	for _, c := range calls {
		if c == nil {
			continue
		}
		if err == nil { // else each would wait in vain for its server to be found, one after the other
			c.batcher, err = b.router.batcherFor(ctx, c.keys[0], route{}, false)
		}
		if c.failed = err; err == nil {
			servers[c.batcher] = append(servers[c.batcher], c)
		}
	}
	var work sync.WaitGroup
	for batcher, some := range servers {
		work.Go(func() { b.sendFirstTo(ctx, batcher, some) })
	}
	work.Wait()
}

// sendFirstTo makes first attempts at one server.
func (b *Backend) sendFirstTo(ctx context.Context, batcher *batcher, calls []*call) {
	if batcher.bySlot { // so that calls of one slot are in the same batches
		slices.SortStableFunc(calls, func(x, y *call) int { return slot(x.keys[0]) - slot(y.keys[0]) })
	}
	first := calls[0]
	ctx, stop := b.router.withFailoverTimeout(ctx, first, failoverTimeout*time.Duration(1+len(calls)/mostTogether))
	defer stop()
	if first.takes {
		batcher.warm(b.life)
	}
	if first.takes && !batcher.examined.Load() { // it finds out whether the others may share commands
		first.failed = batcher.do(ctx, first)
		calls = calls[1:]
	}
	batcher.forCall(first).enqueue(ctx, calls...)
	for _, c := range calls {
		c.failed = c.wait(ctx)
	}
}
