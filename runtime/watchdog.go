package lock

import (
	"container/heap"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
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

// watchdog renews the leases of a Locker and ends those whose deadline passes.
// One goroutine looks at the lease that is due next; the backends' calls run
// beside it, so that no engine's silence keeps it from ending a lease in time.
type watchdog struct {
	locker *Locker
	poke   chan struct{}

	mu      sync.Mutex // guards what follows down to ctx, and the fields of heldLease that it names
	leases  leaseHeap
	next    time.Time     // when the goroutine looks again
	slept   time.Duration // by the machine, as known at the last look
	awake   time.Duration // within which a sleep of the machine is noticed
	running bool
	halted  bool
	down    map[string]time.Time // since when no renewal at the backend of this name has succeeded

	ctx    context.Context // of renewals
	cancel context.CancelFunc
	work   sync.WaitGroup // the goroutine and the renewals
}

func (w *watchdog) init(l *Locker) {
	w.locker, w.awake = l, noticeSleep
	w.poke = make(chan struct{}, 1)
	w.ctx, w.cancel = context.WithCancel(context.Background())
}

// add begins to watch lk, which was granted just before now.
func (w *watchdog) add(lk *heldLease, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.halted {
		return
	}
	if !w.running {
		w.running, w.slept = true, bootclock.Measure()
		w.next = now.Add(time.Hour)
		w.work.Go(w.run)
	}
	// The deadline counts from before the grant was asked for, so a lease that came
	// late is renewed at once.
	after := max(lk.renewalIn(now), 0)
	lk.late = after == 0
	lk.due = now.Add(min(after, renewAfter(lk.acquisition.TTL)))
	heap.Push(&w.leases, lk)
	w.wakeLocked(lk)
}

// listen subscribes to what lk learns of its own loss, if it is a LossNotifier.
func (w *watchdog) listen(lk *heldLease) {
	n, ok := lk.Lease.(driver.LossNotifier)
	if !ok {
		return
	}
	n.NotifyLoss(func() { w.look(lk) })
	now := time.Now()
	if lk.deadline().LeftAt(now) <= 0 { // lost before it could say so
		w.locker.lose(lk, errLeaseOver)
		return
	}
	if after := max(lk.renewalIn(now), 0); after > 0 || !lk.late { // else it is being renewed
		w.lookWithin(lk, after) // the acquire does not wait for it
	}
}

// look ends or renews lk if that is due by its present deadline. Otherwise it
// schedules the next look.
func (w *watchdog) look(lk *heldLease) {
	now := time.Now()
	left, after := lk.deadline().LeftAt(now), lk.renewalIn(now)
	switch {
	case left <= 0:
		w.locker.lose(lk, errLeaseOver)
	case after > 0 || !lk.holder.Load().renews():
		w.lookWithin(lk, max(after, 0))
	case w.watches(lk):
		w.renew(lk.entry.backend, []*heldLease{lk})
	}
}

// lookWithin schedules the next look at lk within after, unless it is sooner already.
func (w *watchdog) lookWithin(lk *heldLease, after time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if due := time.Now().Add(after); lk.index >= 0 && due.Before(lk.due) {
		lk.due = due
		heap.Fix(&w.leases, lk.index)
		w.wakeLocked(lk)
	}
}

func (w *watchdog) watches(lk *heldLease) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return lk.index >= 0 && !w.halted
}

// remove ends the watch over lk. A renewal of it that is under way changes
// nothing any more: the engine checks the owner, and its answer is ignored.
func (w *watchdog) remove(lk *heldLease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if lk.index >= 0 {
		heap.Remove(&w.leases, lk.index)
	}
}

// schedule sets when lk is looked at next, at the latest when its deadline comes,
// unless the watch over it has ended. It reports whether the renewal before has
// failed as well.
func (w *watchdog) schedule(lk *heldLease, after time.Duration, failed bool) (before bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before = lk.failed
	if lk.index < 0 {
		return before
	}
	lk.failed = failed
	lk.due = time.Now().Add(min(after, lk.deadline().Left()))
	heap.Fix(&w.leases, lk.index)
	w.wakeLocked(lk)
	return before
}

// wakeLocked wakes the goroutine if lk is due before it looks again by itself. It
// doesn't reset the timer when a release removes the earliest lease, so that a lock
// that is taken and released at a rate wakes nobody. Nor does a renewal that is due
// only a moment sooner, as are all of one session.
func (w *watchdog) wakeLocked(lk *heldLease) {
	next := w.next
	if lk.holder.Load().renews() {
		next = next.Add(-min(lk.acquisition.TTL/100, time.Millisecond))
	}
	if !lk.due.Before(next) {
		return
	}
	w.next = lk.due
	select {
	case w.poke <- struct{}{}:
	default:
	}
}

// halt stops the goroutine and the renewals under way; wait waits for them.
func (w *watchdog) halt() {
	w.mu.Lock()
	w.halted = true
	w.mu.Unlock()
	w.cancel()
}

func (w *watchdog) wait() { w.work.Wait() }

func (w *watchdog) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		over, renew, next := w.collect()
		for _, lk := range over {
			w.locker.lose(lk, errLeaseOver)
		}
		for _, leases := range renew {
			w.work.Go(func() { w.renew(leases[0].entry.backend, leases) })
		}
		timer.Reset(next)
		select {
		case <-timer.C:
		case <-w.poke:
		case <-w.ctx.Done():
			return
		}
	}
}

// collect returns the leases that are over, those to renew by backend, and how
// long it is until the next one is due.
func (w *watchdog) collect() (over []*heldLease, renew map[string][]*heldLease, next time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	slept := bootclock.Measure()             // once for all deadlines of this round
	if since := slept - w.slept; since > 0 { // in which what is due came no nearer
		for _, lk := range w.leases {
			lk.due = lk.due.Add(-since)
		}
	}
	w.slept = slept
	now := time.Now()
	var later []*heldLease // taken out to be put back
	for len(w.leases) > 0 {
		lk := w.leases[0]
		due := !lk.due.After(now)
		if !due && !w.fillsUpLocked(lk, renew, now) {
			break
		}
		heap.Pop(&w.leases)
		later = append(later, lk)
		left := lk.deadline().Left()
		if left <= 0 {
			over = append(over, lk)
			continue
		}
		lk.due = now.Add(left)
		if lk.holder.Load().renews() {
			// Renew again in a sixth of the ttl, also while this renewal has no answer.
			lk.due = now.Add(min(left, lk.acquisition.TTL/6))
			if renew == nil {
				renew = map[string][]*heldLease{}
			}
			renew[lk.entry.id.backend] = append(renew[lk.entry.id.backend], lk)
		}
	}
	for _, lk := range later {
		heap.Push(&w.leases, lk)
	}
	soonest := now.Add(time.Hour)
	if len(w.leases) > 0 {
		soonest = w.leases[0].due
	}
	// A look that was promised takes place, also if the lease that it was for has
	// been released: else the next lease would have to rouse the goroutine again.
	if !w.next.After(now) || soonest.Before(w.next) {
		w.next = soonest
	}
	if next = time.Until(w.next); len(w.leases) > 0 {
		next = min(next, w.awake)
	}
	return over, renew, next
}

// fillsUpLocked reports whether lk, which is due next but not yet, is to be renewed
// now all the same, because a command is being sent that has room for it.
// Leases that were renewed together fall due together, so after a period the
// batches are full.
func (w *watchdog) fillsUpLocked(lk *heldLease, renew map[string][]*heldLease, now time.Time) bool {
	if len(renew[lk.entry.id.backend])%renewBatch == 0 {
		return false
	}
	return lk.due.Sub(now) < lk.acquisition.TTL/6 && !lk.failed && lk.holder.Load().renews()
}

// renew renews leases, which are all of backend b, and sets when each is due next.
func (w *watchdog) renew(b driver.Backend, leases []*heldLease) {
	ttls := make([]time.Duration, len(leases))
	for i, lk := range leases {
		ttls[i] = lk.acquisition.TTL
	}
	// Not until the deadline: the answer to an earlier renewal may yet move that.
	ctx, cancel := context.WithTimeout(w.ctx, slices.Max(ttls))
	defer cancel()
	sent := time.Now()
	errs := w.call(ctx, b, leases, ttls)
	waited := time.Since(sent)
	w.noteOutage(leases[0].entry.id.backend, errs)
	jitter := 1 - rand.Float64()/10 // one for all, so that they stay together
	for i, lk := range leases {
		switch err := errs[i]; {
		case err == nil:
			// From when it was sent, as the lease: else a slow engine's next
			// answer would come after its end.
			after := time.Duration(float64(renewAfter(ttls[i]))*jitter) - waited
			w.schedule(lk, max(after, 0), false)
			lk.holder.Load().observe(Renewed, waited, nil)
		case isLost(err):
			w.locker.lose(lk, errNotOwner)
		default:
			if failed := w.schedule(lk, retryAfter(ttls[i]), true); !failed {
				lk.holder.Load().observe(RenewalFailed, waited, err)
			}
		}
	}
}

// noteOutage tells the Observer when renewals at the backend of this name begin to
// fail, and when one succeeds again; errs are the results of one round of them.
func (w *watchdog) noteOutage(backend string, errs []error) {
	if w.ctx.Err() != nil { // by Close, which ends the renewals under way
		return
	}
	var failure error
	for _, err := range errs {
		if err == nil || isLost(err) { // answered
			failure = nil
			break
		}
		failure = err
	}
	w.mu.Lock()
	since, down := w.down[backend]
	switch {
	case failure != nil && !down:
		if w.down == nil {
			w.down = map[string]time.Time{}
		}
		w.down[backend] = time.Now()
	case failure == nil && down:
		delete(w.down, backend)
	}
	w.mu.Unlock()
	switch {
	case failure != nil && !down:
		w.locker.observeOutage(OutageBegan, backend, 0, failure)
	case failure == nil && down:
		w.locker.observeOutage(OutageEnded, backend, time.Since(since), nil)
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
	var wg sync.WaitGroup
	room := make(chan struct{}, renewAtOnce)
	for i, lk := range leases {
		room <- struct{}{}
		wg.Go(func() {
			errs[i] = lk.Renew(ctx, ttls[i])
			<-room
		})
	}
	wg.Wait()
	return errs
}

func repeated(err error, n int) []error {
	errs := make([]error, n)
	for i := range errs {
		errs[i] = err
	}
	return errs
}

// leaseHeap orders leases by when they are due.
type leaseHeap []*heldLease

func (h leaseHeap) Len() int           { return len(h) }
func (h leaseHeap) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h leaseHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}
func (h *leaseHeap) Push(x any) {
	lk := x.(*heldLease)
	lk.index = len(*h)
	*h = append(*h, lk)
}
func (h *leaseHeap) Pop() any {
	old := *h
	lk := old[len(old)-1]
	old[len(old)-1] = nil
	lk.index = -1
	*h = old[:len(old)-1]
	return lk
}
