package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// The locks of one AcquireAll are tried, and released, at once. Where the engine takes many keys
// in few commands, only the commands are joint: each lock has its own entry, acquisition, lease
// and undo.
//
//	free in this process -> busy with the key -> asked for -> as after compete
//	released -> its lease waits for the others, in a batch -> freed -> as after a single release

const (
	// maxSequential is up to how many locks are taken and released one after the other, without
	// goroutines, at an engine that is asked for each key.
	maxSequential = 3

	// maxAtOnce is how many goroutines take or release the locks of one call.
	maxAtOnce = 256

	// maxConflicts is how often a call tries all the locks that it lacks at once, and gives some
	// back. After that it takes the rest one after the other, so that it ends.
	maxConflicts = 3
)

// trial is the state of a lock that takeTogether asks for. Each lock has a hold, and is renewed,
// as soon as it is granted: the others may take longer to be answered than its lease lasts.
type trial int32

const (
	kept    trial = iota // the call keeps it, or it was never a trial
	trying               // it may be given back, so no Observer hears of it
	dropped              // it was lost while trying, and can't be kept any more
)

// tries reports whether h is for a call that does not wait for the key's holder. It is
// asked before h is held.
func (h *hold) tries() bool { return h.policy.Try || h.trial.Load() != int32(kept) }

// keep ends the trial of h, which the Observer may hear of from now on. It reports false if
// h was lost before.
func (h *hold) keep() bool { return h.trial.CompareAndSwap(int32(trying), int32(kept)) }

// hidesFromObserver reports whether the Observer must not hear what has become of h.
func (h *hold) hidesFromObserver(kind EventKind) bool {
	if kind == Lost && h.trial.CompareAndSwap(int32(trying), int32(dropped)) {
		return true
	}
	return h.trial.Load() != int32(kept)
}

// countTriable returns how many requests at the beginning of reqs can be tried at once, all at one
// backend. It returns 0 if that is not worth it.
func (l *Locker) countTriable(outer *frame, reqs []Request) int {
	enough, first := maxSequential+1, reqs[0].Policy.Backend
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
// here already. Queue limits who waits, and a trial does not wait. Two calls with Try could
// each be refused a lock that the other gives back a moment later; if they ask for one key
// after the other, the first call gets all.
func (l *Locker) canTry(outer *frame, r Request) bool {
	p := r.Policy
	return p.kind() == 0 && !p.Try && p.Queue == 0 && p.Delay == 0 && p.AtLeast == 0 && p.Sticky == 0 &&
		(batches(l.backend(p.Backend)) || atOnce(l.backend(p.Backend)) > 1) && outer.find(l, p.Backend, r.Key) == nil
}

// atOnce returns how many calls of b one call of ours may make at the same time.
func atOnce(b driver.Backend) int {
	if bounded, ok := b.(driver.Bounded); ok {
		return min(max(bounded.AtOnce(), 1), maxAtOnce)
	}
	return maxAtOnce
}

// batches reports whether b takes many keys in few commands.
func batches(b driver.Backend) bool {
	_, ok := b.(driver.BatchAcquirer)
	return ok
}

// attempt is the result for one lock that was tried.
type attempt struct {
	held *Hold
	err  error
}

// takeTogether tries the next size of the requests that all lacks, at once. It adds the locks
// before the first refused one to all, gives the others back, and reports whether none was
// refused. So a call that then waits for the refused one holds none that comes after it. An
// error is final, and that of the first lock that failed. ErrUnavailable is no such error until
// the wait is over: a call that waits may get the lock once another server has taken over.
func (l *Locker) takeTogether(ctx context.Context, all *Hold, reqs []Request, ends []time.Time, size int) (done bool, err error) {
	began, called := len(all.holds), l.nowIfObserved()
	tried := l.try(ctx, reqs[began:began+size], ends[began:began+size])
	n := 0
	for ; n < size && tried[n].err == nil; n++ {
		one := tried[n].held
		if !one.frame.hold().keep() {
			break
		}
		l.observeHold(ctx, one.frame.hold(), called)
		all.add(one)
	}
	if n == size {
		return true, nil
	}
	var back []*Hold
	method := &methodContext{caller: ctx} // for locks that no method will run under
	for _, one := range tried[n:] {
		if one.held != nil {
			one.held.method = method
			back = append(back, one.held)
		}
	}
	r, err := reqs[began+n], tried[n].err
	away := errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrIndeterminate)
	if err != nil && !errors.Is(err, ErrNotAcquired) && !away {
		all.holds = append(all.holds, back...) // to be released with the others, in the time of one release
		return false, l.reject(ctx, r.Policy, r.Key, called, err)
	}
	releasePart(ctx, back, ends)
	if over := (&acquireOp{ctx: ctx, end: ends[began+n]}).callerDone(); over && away { // a wait that is over would report the lock as held
		return false, l.reject(ctx, r.Policy, r.Key, called, endedBy(ctx, ErrUnavailable, err))
	}
	return false, nil
}

// try tries all of reqs at once. Those that come after one that failed may be left out.
// Where the engine is asked for each key, a key is reserved just before it is asked for:
// until then other calls of this process may take it.
func (l *Locker) try(ctx context.Context, reqs []Request, ends []time.Time) []attempt {
	backend := l.backend(reqs[0].Policy.Backend)
	if b, ok := backend.(driver.BatchAcquirer); ok {
		return l.tryInBatch(ctx, b, reqs, ends)
	}
	tried := make([]attempt, len(reqs))
	var failed atomic.Int64 // the index of the first that failed
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

// tryInBatch is try for requests at b. It asks for those before the first key that another call
// of this process holds or wants, so that it waits for no other call while it is busy with
// keys.
func (l *Locker) tryInBatch(ctx context.Context, b driver.BatchAcquirer, reqs []Request, ends []time.Time) []attempt {
	tried := make([]attempt, len(reqs))
	var ops []*acquireOp
	var as []*driver.Acquisition
	for i, r := range reqs {
		op, err := l.reserve(ctx, r, earliest(ends))
		if err != nil {
			tried[i].err = err
			break
		}
		op.fillAcquisition()
		ops, as = append(ops, op), append(as, op.acquisition)
	}
	if len(ops) == 0 {
		return tried
	}
	askCtx, cancel := ops[0].bounded()
	defer cancel()
	leases, errs := make([]driver.Lease, len(as)), repeated(errHeld, len(as))
	if !ops[0].callerDone() { // else nothing needs to be sent
		leases, errs = b.AcquireAll(askCtx, as)
	}
	if len(leases) != len(as) || len(errs) != len(as) {
		leases = make([]driver.Lease, len(as))
		errs = repeated(fmt.Errorf("%w: AcquireAll broke its contract: a lease or an error for each", ErrIndeterminate), len(as))
	}
	for i, op := range ops {
		if errs[i] != nil {
			op.entry.noteAnswer(errs[i])
		}
		tried[i] = l.conclude(op, leases[i], errs[i])
	}
	return tried
}

// reserve makes this goroutine the one that is busy with r's key, unless another call of
// this process holds or wants the key. conclude must follow.
func (l *Locker) reserve(ctx context.Context, r Request, end time.Time) (*acquireOp, error) {
	s, err := l.admit(ctx, r.Key)
	if err != nil {
		return nil, err
	}
	h := &hold{locker: l, policy: r.Policy}
	h.trial.Store(int32(trying))
	s.mu.Lock()
	e, fresh := s.entryLocked(entryID{backend: r.Policy.Backend, key: r.Key}, r.Policy, l)
	s.mu.Unlock()
	if fresh == nil {
		l.leave(s)
		return nil, because(ErrNotAcquired, errHeld)
	}
	return &acquireOp{locker: l, entry: e, hold: h, ctx: ctx, end: end, acquisition: &fresh.lease.acquisition, reserved: &fresh.lease}, nil
}

// conclude handles the answer to op as compete and takeOne do.
func (l *Locker) conclude(op *acquireOp, lease driver.Lease, err error) attempt {
	e, h := op.entry, op.hold
	if err != nil {
		err = l.stopCompeting(op, err)
	} else {
		var inTime bool
		if inTime, err = l.granted(e, h, op.reserved, lease); err == nil && !inTime {
			err = l.tooLate(e, h)
		}
	}
	if err != nil {
		l.leave(e.shard)
		return attempt{err: err}
	}
	one := &Hold{frame: &frame{}}
	one.frame.current.Store(h)
	return attempt{held: one}
}

// releaseAll releases the last one first, or all at once. The order of the errors in *errp
// is the same either way.
func releaseAll(ctx context.Context, holds []*Hold, errp *error) {
	holds = slices.Clone(holds)
	slices.Reverse(holds)
	errs, together := make([]error, len(holds)), make([]releasing, len(holds))
	var each []int
	most := maxAtOnce
	for i, one := range holds {
		if ctx != endedContext && one.releasesInBatch() {
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
	if len(each) <= maxSequential || ctx == endedContext { // whose releases wait for nothing
		most = 1
	}
	inParallel(len(each), most, func(n int) {
		i := each[n]
		errs[i] = holds[i].releaseOne(ctx)
	})
	for i, one := range holds {
		one.addTo(errp, errs[i])
	}
}

// releasesInBatch reports whether the lease of h can be freed together with others.
func (h *Hold) releasesInBatch() bool {
	e := h.frame.hold().entry
	_, ok := e.backend.(driver.BatchReleaser)
	return ok && h.parent == nil && e.id.kind == 0
}

// freeTogether has the backends free the leases of rs, where there is one, and lets the
// next in the queues of their entries compete. The backends are BatchReleasers.
func freeTogether(ctx context.Context, rs []releasing) {
	groups := map[string][]*releasing{} // by the backend's name
	for i := range rs {
		if r := &rs[i]; r.lease != nil {
			name := r.lease.entry.id.backend
			groups[name] = append(groups[name], r)
		}
	}
	var work sync.WaitGroup
	for _, group := range groups {
		work.Go(func() {
			b := group[0].lease.entry.backend.(driver.BatchReleaser)
			leases, lasts := make([]driver.Lease, len(group)), make([]uint64, len(group))
			for i, r := range group {
				leases[i], lasts[i] = r.lease.Lease, r.lease.token-1
			}
			errs := b.ReleaseAll(ctx, leases, lasts)
			if len(errs) != len(leases) {
				errs = repeated(errors.New("ReleaseAll broke its contract: one result for each lease"), len(leases))
			}
			for i, r := range group {
				l := r.hold.locker
				r.err = l.finishRelease(r.lease, errs[i])
				l.wakeNext(r.lease.entry)
			}
		})
	}
	work.Wait()
}

// inParallel calls f with 0 to n-1, started in this order, on up to most goroutines. The
// caller's is one of them.
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
