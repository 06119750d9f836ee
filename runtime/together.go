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

	// maxConflicts is how often a call tries the locks that it lacks all at once, and has to
	// give some back. It takes the others one after the other, so that what it repeats
	// has a bound.
	maxConflicts = 3
)

// trial says what becomes of a lock that takeTogether asks for. Where the engine is asked for each,
// to make this process busy with all keys before the first is asked for, as a batch does, would keep
// other calls from keys that nobody asks for yet, and to begin the holds when all are answered would
// leave the first ones without renewals meanwhile.
type trial int32

const (
	kept    trial = iota // it is the call's, or was never a trial
	trying               // it may be given back, so no Observer hears of it
	dropped              // it was lost before it was kept, and can't be kept any more
)

// tries reports whether h is for a call that does not wait for the key's holder. It is
// asked before h is held.
func (h *hold) tries() bool { return h.policy.Try || h.trial.Load() != int32(kept) }

// keep ends the trial of h, which the Observer may hear of from now on. It reports false if
// h was lost before.
func (h *hold) keep() bool { return h.trial.CompareAndSwap(int32(trying), int32(kept)) }

// hides reports whether the Observer must not hear what has become of h.
func (h *hold) hides(kind EventKind) bool {
	if kind == Lost && h.trial.CompareAndSwap(int32(trying), int32(dropped)) {
		return true
	}
	return h.trial.Load() != int32(kept)
}

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
// with a Delay or AtLeast may stay closed when it is given back. One with Sticky may be
// here already. Queue limits who waits,
// and a trial does not. Of two calls with Try that cross, each could be refused what the
// other is about to give back; one after the other, the first of them gets all.
func (l *Locker) canTry(outer *frame, r Request) bool {
	p := r.Policy
	return p.kind() == 0 && !p.Try && p.Queue == 0 && p.Delay == 0 && p.AtLeast == 0 && p.Sticky == 0 &&
		(batches(l.backend(p.Backend)) || atOnce(l.backend(p.Backend)) > 1) && outer.find(l, p.Backend, r.Key) == nil
}

// atOnce returns how many calls of b one call of ours may make at the same time.
func atOnce(b driver.Backend) int {
	if few, ok := b.(driver.Bounded); ok {
		return min(max(few.AtOnce(), 1), mostAtOnce)
	}
	return mostAtOnce
}

// attempt is what came of one lock that was tried.
type attempt struct {
	held *Hold
	err  error
}

// takeTogether tries the next run of reqs that all lacks, all at once. It adds those before
// the first that was refused to all, gives the others back, and reports whether none was
// refused. So a call that then waits for the one that was refused holds none that comes
// after it. An error is final: it is that of the first that failed.
func (l *Locker) takeTogether(ctx context.Context, all *Hold, reqs []Request, ends []time.Time, run int) (done bool, err error) {
	began, called := len(all.rest), l.observedSince()
	tried := l.try(ctx, reqs[began:began+run], ends[began:began+run])
	n := 0
	for ; n < run && tried[n].err == nil; n++ {
		one := tried[n].held
		if !one.frame.hold().keep() {
			break
		}
		l.observeHold(ctx, one.frame.hold(), called)
		all.add(one)
	}
	if n == run {
		return true, nil
	}
	var back []*Hold
	method := &methodContext{caller: ctx} // for those that no method will run under
	for _, one := range tried[n:] {
		if one.held != nil {
			one.held.method = method
			back = append(back, one.held)
		}
	}
	if err := tried[n].err; err != nil && !errors.Is(err, ErrNotAcquired) && !isAway(err) {
		all.rest = append(all.rest, back...) // which are released with the others, in the time of one release
		return false, l.reject(ctx, reqs[began+n].Policy, reqs[began+n].Key, called, err)
	}
	releasePart(ctx, back, ends)
	return false, nil
}

// try tries all of reqs at once. What comes after one that failed may be left out.
func (l *Locker) try(ctx context.Context, reqs []Request, ends []time.Time) []attempt {
	backend := l.backend(reqs[0].Policy.Backend)
	if b, ok := backend.(driver.BatchAcquirer); ok {
		return l.tryInBatch(ctx, b, reqs, ends)
	}
	tried := make([]attempt, len(reqs))
	var failed atomic.Int64 // the first that did
	failed.Store(int64(len(reqs)))
	inParallel(len(reqs), atOnce(backend), func(i int) {
		if failed.Load() < int64(i) {
			return
		}
		op, err := l.reserve(ctx, reqs[i], ends[i])
		if err == nil {
			lease, err := op.run()
			tried[i] = l.conclude(op, lease, err)
		} else {
			tried[i].err = err
		}
		if tried[i].err == nil {
			return
		}
		for first := failed.Load(); int64(i) < first && !failed.CompareAndSwap(first, int64(i)); first = failed.Load() {
		}
	})
	return tried
}

// releaseAll releases the last one first, or all at once. What it adds to *errp has the
// same order either way.
func releaseAll(ctx context.Context, rest []*Hold, errp *error) {
	rest = slices.Clone(rest)
	slices.Reverse(rest)
	errs, together := make([]error, len(rest)), make([]releasing, len(rest))
	var each []int
	most := mostAtOnce
	for i, one := range rest {
		if ctx != endedContext && one.joins() {
			together[i] = one.beginRelease()
		} else {
			each = append(each, i)
			most = min(most, atOnce(one.frame.hold().entry.backend))
		}
	}
	freeTogether(ctx, together)
	for i := range together {
		errs[i] = together[i].end()
	}
	if len(each) <= handful || ctx == endedContext { // that one waits for nothing
		most = 1
	}
	inParallel(len(each), most, func(n int) {
		i := each[n]
		errs[i] = rest[i].releaseOne(ctx)
	})
	for i, one := range rest {
		one.addTo(errp, errs[i])
	}
}

// inParallel calls f with 0 to n-1, begun in this order, on most goroutines at most. This
// one is one of them.
func inParallel(n, most int, f func(i int)) {
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
