package redislock

import (
	"context"
	"slices"
	"sync"

	"github.com/lockgen/lockgen/runtime/driver"
)

// What a Locker takes or frees for one call is sent in as few commands as there can be. Each
// lock has a call of its own all the same (see together.lua): only the first attempts are
// made together, and what they leave open goes on as it does for a lock by itself.

// mostTogether is how many calls are waited for together: what that takes a server is
// little beside suspicious.
const mostTogether = 8 * batchLimit

// AcquireAll implements [driver.BatchAcquirer].
func (b *Backend) AcquireAll(ctx context.Context, as []*driver.Acquisition) ([]driver.Lease, []error) {
	leases, errs := make([]driver.Lease, len(as)), make([]error, len(as))
	ks, began := make([]keys, len(as)), make([]*call, len(as))
	var first []*call
	for i, a := range as {
		if ks[i], errs[i] = vet(a); errs[i] != nil || b.unusable != nil || b.options.Replicas > 0 || a.Mode.Kind != 0 || a.Queue {
			continue // alone
		}
		began[i] = &call{request: b.acquire(ks[i], a, nil)}
		first = append(first, began[i])
	}
	b.begin(ctx, first)
	each(began, func(i int) {
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
	errs, freeings, began := make([]error, len(leases)), make([]freeing, len(leases)), make([]*call, len(leases))
	var first []*call
	for i, one := range leases {
		l, ok := one.(*lease)
		if !ok {
			continue // of another kind
		}
		b.subscriber.letGo(l)
		freeings[i] = l.freeing(lasts[i])
		began[i] = &call{request: freeings[i].request(l.keys, l.id)}
		first = append(first, began[i])
	}
	b.begin(ctx, first)
	each(began, func(i int) {
		if l, ok := leases[i].(*lease); ok {
			errs[i] = l.release(ctx, freeings[i], began[i])
		} else {
			errs[i] = leases[i].Release(ctx, lasts[i])
		}
	})
	return errs
}

// begin makes first attempts: those for one server together, and those for several at the
// same time.
func (b *Backend) begin(ctx context.Context, all []*call) {
	servers := map[*batcher][]*call{}
	var err error
	for _, c := range all {
		if err == nil { // else each would ask for the way in vain, one after the other
			c.batcher, err = b.router.of(ctx, c.keys[0], route{}, false)
		}
		if c.failed = err; err == nil {
			servers[c.batcher] = append(servers[c.batcher], c)
		}
	}
	var work sync.WaitGroup
	for l, some := range servers {
		work.Go(func() {
			if l.bySlot { // so that those of a slot stand in the same batches
				slices.SortStableFunc(some, func(x, y *call) int { return slot(x.keys[0]) - slot(y.keys[0]) })
			}
			for part := range slices.Chunk(some, mostTogether) {
				b.beginAt(ctx, l, part)
			}
		})
	}
	work.Wait()
}

// beginAt makes first attempts at one server.
func (b *Backend) beginAt(ctx context.Context, l *batcher, calls []*call) {
	script := calls[0].script
	ctx, stop := b.router.suspecting(ctx, script, suspicious)
	defer stop()
	if script.takes {
		l.warm(b.life)
	}
	if script.takes && !l.asked.Load() { // the first finds out whether the others may go together
		calls[0].failed = l.do(ctx, calls[0])
		calls = calls[1:]
	}
	l.of(script).put(ctx, calls...)
	for _, c := range calls {
		c.failed = c.wait(ctx)
	}
}

// each calls f with each index of began, at the same time where there is more to ask.
func each(began []*call, f func(i int)) {
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
