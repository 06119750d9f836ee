package lock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

const (
	// handful is how many locks are still taken and released one after the other where the
	// engine is asked for each: few round trips, and no goroutines.
	handful = 3

	// mostAtOnce is how many goroutines take or release the locks of one call.
	mostAtOnce = 256

	// maxConflicts is how often a call tries the locks that it lacks all at once, and is
	// refused one. It takes the others one after the other, so that what it repeats
	// has a bound.
	maxConflicts = 3
)

// runOf returns how many of the first of reqs can be tried all at once, or 0 if that is not
// worth it. They are of one backend.
func (l *Locker) runOf(outer *frame, reqs []Request) int {
	enough, first := handful+1, reqs[0].Policy.Backend
	if batches(l.backend(first)) {
		enough = 2
	}
	n := slices.IndexFunc(reqs, func(r Request) bool { return r.Policy.Backend != first || !l.canTry(outer, r) })
	if n < 0 {
		n = len(reqs)
	}
	if n < enough {
		return 0
	}
	return n
}

// canTry reports whether r can be tried beside others. A re-entry sends nothing. A lock
// with a Delay may stay closed when it is given back. One with Sticky may be here already.
// Queue limits who waits, and a trial does not. Of two calls with Try that cross, each
// could be refused what the other is about to give back; one after the other, the first of
// them gets all.
func (l *Locker) canTry(outer *frame, r Request) bool {
	p := r.Policy
	return p.kind() == 0 && !p.Try && p.Queue == 0 && p.Delay == 0 && p.Sticky == 0 &&
		(batches(l.backend(p.Backend)) || atOnce(l.backend(p.Backend)) > 1) && outer.find(l, p.Backend, r.Key) == nil
}

// atOnce returns how many calls of b one call of ours may make at the same time.
func atOnce(b driver.Backend) int {
	if few, ok := b.(driver.Bounded); ok {
		return min(max(few.AtOnce(), 1), mostAtOnce)
	}
	return mostAtOnce
}

// takeTogether asks for the next run of reqs that all lacks, all at once. It adds those before
// the first that was refused to all, gives the others back, and reports whether none was
// refused, or one by the engine. So a call that then waits for the one that was refused
// holds none that comes after it. An error is final: it is that of the first that failed.
func (l *Locker) takeTogether(ctx context.Context, all *Hold, reqs []Request, ends []time.Time, run int) (done, conflict bool, err error) {
	began, called := len(all.rest), l.observedSince()
	ops, refused := l.reserveAll(ctx, reqs[began:began+run], earliest(ends[began:began+run]))
	leases, errs := askAll(ops)
	var back []*releasing
	for i, op := range ops {
		switch {
		case err == nil:
			if err = l.conclude(op, leases[i], errs[i]); err == nil {
				l.observeHold(ctx, op.hold, called)
				all.add(op.hold.inSeveral())
			}
		case errs[i] == nil:
			back = append(back, op.unused(leases[i]))
		default:
			_ = l.conclude(op, nil, errs[i])
		}
	}
	if len(back) > 0 {
		inTimeOfRelease(ctx, ends, func(ctx context.Context) { freeAll(ctx, back) })
	}
	for _, r := range back {
		l.leave(r.lease.entry.shard)
	}
	conflict = err != nil
	if err == nil {
		err = refused
	}
	if err != nil && !errors.Is(err, ErrNotAcquired) {
		r := reqs[len(all.rest)]
		return false, false, l.reject(ctx, r.Policy, r.Key, called, err)
	}
	return err == nil, conflict, nil
}

// releaseAll releases the last one first as far as this process goes, and has the engines free
// what is left to them at once. What it adds to *errp has the same order.
func releaseAll(ctx context.Context, rest []*Hold, errp *error) {
	rest = slices.Clone(rest)
	slices.Reverse(rest)
	all := make([]releasing, len(rest))
	var groups [][]*releasing // of one backend and kind
	for i, one := range rest {
		r := &all[i]
		if *r = one.beginRelease(); r.lease == nil {
			continue
		}
		at := slices.IndexFunc(groups, func(g []*releasing) bool { return g[0].joins(r) })
		if at < 0 {
			at, groups = len(groups), append(groups, make([]*releasing, 0, len(rest)-i))
		}
		groups[at] = append(groups[at], r)
	}
	inParallel(len(groups), len(groups), func(i int) { freeAll(ctx, groups[i]) })
	for i, one := range rest {
		one.addTo(errp, all[i].end())
	}
}

// inParallel calls f with 0 to n-1, begun in this order, on most goroutines at most. This
// one is one of them.
func inParallel(n, most int, f func(i int)) {
	if min(n, most) <= 1 { // without an allocation
		for i := range n {
			f(i)
		}
		return
	}
	var next atomic.Int64
	work := func() {
		for i := next.Add(1); i <= int64(n); i = next.Add(1) {
			f(int(i - 1))
		}
	}
	var others sync.WaitGroup
	for range min(n, most) - 1 {
		others.Go(work)
	}
	work()
	others.Wait()
}
