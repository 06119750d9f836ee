package lock

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/bootclock"
)

const (
	// renewBatch is how many leases a call of driver.BatchRenewer is filled up to.
	// Backends send one command for so many.
	renewBatch = 100
	// renewAtOnce bounds the goroutines that renew leases of a backend without
	// driver.BatchRenewer.
	renewAtOnce = 16
	// noticeSleep is how long after a sleep of the machine it takes at most until
	// leases that are over are ended: timers stand still while the machine sleeps.
	noticeSleep = 10 * time.Second
)

// watchdog renews the leases of a Locker and ends those whose deadline passes. The
// leases stand in the heaps of the shards, so that a call adds and removes its own
// under the mutex that it needs anyway. One goroutine looks at the lease that is due
// next; the backends' calls run beside it, so that no engine's silence keeps it from
// ending a lease in time.
type watchdog struct {
	locker       *Locker
	wake         chan struct{}
	noticeWithin time.Duration // a sleep of the machine is noticed so long after it, at most
	next         atomic.Int64  // ns after the zero Instant: when the goroutine looks again; only it moves this back
	running      atomic.Bool   // the goroutine was started

	mu sync.Mutex // guards the start of the goroutine

	ctx    context.Context // of renewals
	cancel context.CancelFunc
	work   sync.WaitGroup // the goroutine and the renewals
}

func (w *watchdog) init(l *Locker) {
	w.locker, w.noticeWithin = l, noticeSleep
	w.wake = make(chan struct{}, 1)
	w.setNext(never)
	w.ctx, w.cancel = context.WithCancel(context.Background())
}

// start starts the goroutine with the first lease.
func (w *watchdog) start() {
	if w.running.Load() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ctx.Err() == nil && !w.running.Swap(true) {
		w.work.Go(w.run)
	}
}

// addLocked begins to watch lk, which is new.
func (w *watchdog) addLocked(lk *heldLease) {
	heap.Push(&lk.entry.shard.leases, lk)
	w.wakeLocked(lk)
}

// listen subscribes to what lk learns of its own loss, if it is a LossNotifier.
func (w *watchdog) listen(lk *heldLease) {
	n, ok := lk.Lease.(driver.LossNotifier)
	if !ok {
		return
	}
	n.NotifyLoss(func() { w.look(lk) })
	now := driver.Now()
	if lk.deadline().Sub(now) <= 0 { // lost before NotifyLoss
		w.locker.lose(lk, errLeaseOver)
		return
	}
	if after := max(lk.renewalIn(now), 0); after > 0 || !lk.dueAtGrant { // else it is being renewed
		w.lookWithin(lk, after) // the acquire does not wait for a renewal
	}
}

// look ends or renews lk if that is due by its present deadline. Otherwise it
// schedules the next look.
func (w *watchdog) look(lk *heldLease) {
	now := driver.Now()
	left, after := lk.deadline().Sub(now), lk.renewalIn(now)
	switch {
	case left <= 0:
		w.locker.lose(lk, errLeaseOver)
	case after > 0 || !lk.holder.Load().renews():
		w.lookWithin(lk, max(after, 0))
	case w.canRenew(lk):
		w.renew(lk.entry.backend, []*heldLease{lk})
	}
}

// lookWithin schedules the next look at lk within after, unless it is sooner already.
func (w *watchdog) lookWithin(lk *heldLease, after time.Duration) {
	s := lk.entry.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	w.lookWithinLocked(lk, driver.Now(), after)
}

func (w *watchdog) lookWithinLocked(lk *heldLease, now driver.Instant, after time.Duration) {
	if due := now.Add(after); lk.index >= 0 && due.Before(lk.due) {
		w.moveLocked(lk, due)
	}
}

// overCauseLocked says that lk is over, and why it was not renewed if that is known.
func (lk *heldLease) overCauseLocked() error {
	switch {
	case lk.failure != nil:
		return fmt.Errorf("%w; the last renewal failed: %w", errLeaseOver, &hidden{*lk.failure})
	case lk.renewing:
		return errNoAnswer
	}
	return errLeaseOver
}

// canRenew reports whether lk is still watched, and renewals are not halted.
func (w *watchdog) canRenew(lk *heldLease) bool {
	s := lk.entry.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	return lk.index >= 0 && w.ctx.Err() == nil
}

// schedule sets when lk is looked at next, at the latest when its deadline comes. It reports
// whether a failure is no news: a renewal before it has failed as well, or lk was released.
func (w *watchdog) schedule(lk *heldLease, after time.Duration, failure error) (known bool) {
	s := lk.entry.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	if lk.index < 0 {
		return lk.failure != nil || lk.holder.Load().lostCause() == nil
	}
	known = lk.failure != nil
	lk.renewing, lk.failure = false, nil
	if failure != nil {
		lk.failure = &failure
	}
	now := driver.Now()
	w.moveLocked(lk, now.Add(min(after, lk.deadline().Sub(now))))
	return known
}

func (w *watchdog) moveLocked(lk *heldLease, due driver.Instant) {
	lk.due = lk.dueByLocked(due)
	heap.Fix(&lk.entry.shard.leases, int(lk.index))
	w.wakeLocked(lk)
}

// wakeLocked wakes the goroutine if lk is due before it looks again by itself. It
// doesn't reset the timer when a release removes the earliest lease, so that a lock
// that is taken and released at a rate wakes nobody. Nor does a renewal that is due
// only a moment sooner, as are all of one session.
func (w *watchdog) wakeLocked(lk *heldLease) {
	sooner := time.Duration(0)
	if lk.holder.Load().renews() {
		sooner = min(lk.length()/100, time.Millisecond)
	}
	if !w.setNextIfSooner(lk.due, sooner) {
		return
	}
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// setNextIfSooner sets next to due if that is sooner, by more than by, and reports whether it is.
func (w *watchdog) setNextIfSooner(due driver.Instant, by time.Duration) bool {
	for {
		next := w.next.Load()
		if !due.Add(by).Before(driver.Instant{}.Add(time.Duration(next))) {
			return false
		}
		if w.next.CompareAndSwap(next, int64(due.Sub(driver.Instant{}))) {
			return true
		}
	}
}

// nextLook returns when the goroutine looks again.
func (w *watchdog) nextLook() driver.Instant {
	return driver.Instant{}.Add(time.Duration(w.next.Load()))
}

// setNext sets that, whether it is sooner or later.
func (w *watchdog) setNext(due driver.Instant) { w.next.Store(int64(due.Sub(driver.Instant{}))) }

// halt stops the goroutine and the renewals under way; wait waits for them.
func (w *watchdog) halt() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cancel()
}

func (w *watchdog) wait() { w.work.Wait() }

func (w *watchdog) run() {
	for {
		r, next, idle := w.collect()
		for _, lk := range r.over {
			w.locker.lose(lk, errLeaseOver)
		}
		for _, lk := range r.idle {
			w.locker.freeIdle(lk, r.clock)
		}
		for _, leases := range r.renew {
			w.work.Go(func() { w.renew(leases[0].entry.backend, leases) })
		}
		if idle && w.stopIfUnused() {
			return
		}
		select {
		case <-time.After(next):
		case <-w.wake:
		case <-w.ctx.Done():
			return
		}
	}
}

// stopIfUnused ends the goroutine while no lease is held, so that a Locker that nobody closes can
// be collected. It reports false if there is a lease again. The next lease starts another.
func (w *watchdog) stopIfUnused() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running.Store(false) // first, so that a lease that is added meanwhile starts the goroutine
	for i := range w.locker.shards {
		s := &w.locker.shards[i]
		s.mu.Lock()
		n := len(s.leases)
		s.mu.Unlock()
		if n > 0 {
			w.running.Store(true)
			return false
		}
	}
	return true
}

// collect returns what is due, and how long it is until something is due next. idle says
// that no lease is held, and no look is scheduled: a key that is taken and freed again and
// again must not start a goroutine each time.
func (w *watchdog) collect() (r round, next time.Duration, idle bool) {
	bootclock.Measure() // once for all deadlines of this round
	r.clock = time.Now()
	r.now = driver.At(r.clock)
	far := r.now.Add(time.Hour)
	// A look that was scheduled takes place, also if its lease has been released
	// since: else the next lease would have to wake the goroutine again. Then nothing
	// is scheduled, so that whoever adds a lease meanwhile wakes it.
	if !r.now.Before(w.nextLook()) {
		w.setNext(far)
	}
	for i := range w.locker.shards {
		r.takeDue(&w.locker.shards[i], i)
	}
	for r.fillUp(w.locker) {
	}
	soonest := r.firstDue[r.first()]
	w.setNextIfSooner(soonest, 0)
	next = w.nextLook().Sub(r.now)
	if soonest.Before(never) {
		next = min(next, w.noticeWithin)
	}
	return r, next, soonest == never && !w.nextLook().Before(far)
}

// renew renews leases, which are all of backend b, and sets when each is due next.
func (w *watchdog) renew(b driver.Backend, leases []*heldLease) {
	ttls := make([]time.Duration, len(leases))
	for i, lk := range leases {
		ttls[i] = lk.ttl()
	}
	// Not until the deadline: the answer to an earlier renewal may yet move that.
	ctx, cancel := context.WithTimeout(w.ctx, slices.Max(ttls))
	defer cancel()
	sent := time.Now()
	errs := w.call(ctx, b, leases, ttls)
	waited := time.Since(sent)
	if w.ctx.Err() == nil { // else Close has ended them
		w.locker.noteRenewals(leases[0].entry.id.backend, errs)
	}
	jitter := 1 - rand.Float64()/10 // one for all, so that they stay together
	for i, lk := range leases {
		switch err := errs[i]; {
		case err == nil:
			if ttls[i] == lk.sticky.ttl {
				lk.sticky.growth.CompareAndSwap(growing, grown)
			}
			// Count from when the renewal was sent, as the lease does: else a slow
			// engine's next answer would come after the lease's end.
			after := time.Duration(float64(renewAfter(lk.length()))*jitter) - waited
			w.schedule(lk, max(after, 0), nil)
			lk.holder.Load().observe(Renewed, waited, nil)
		case isLost(err):
			w.locker.lose(lk, errNotOwner)
		default:
			if known := w.schedule(lk, retryAfter(lk.length()), err); !known {
				lk.holder.Load().observe(RenewalFailed, waited, err)
			}
		}
	}
}

func (w *watchdog) call(ctx context.Context, b driver.Backend, leases []*heldLease, ttls []time.Duration) []error {
	if br, ok := b.(driver.BatchRenewer); ok {
		plain := make([]driver.Lease, len(leases))
		for i, lk := range leases {
			plain[i] = lk.Lease
		}
		if errs := br.RenewAll(ctx, plain, ttls); len(errs) == len(leases) {
			return errs
		}
		return repeated(errors.New("RenewAll broke its contract: one result for each lease"), len(leases))
	}
	errs := make([]error, len(leases))
	inParallel(len(leases), renewAtOnce, func(i int) { errs[i] = leases[i].Renew(ctx, ttls[i]) })
	return errs
}

func repeated(err error, n int) []error {
	errs := make([]error, n)
	for i := range errs {
		errs[i] = err
	}
	return errs
}

// renews reports whether the watchdog is to go on renewing for this holder.
func (h *hold) renews() bool {
	p := h.policy
	return !p.NoRenew && (p.Max == 0 || driver.Now().Sub(h.began) < p.Max)
}
