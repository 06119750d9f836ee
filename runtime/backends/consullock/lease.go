package consullock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/lockgen/lockgen/runtime/driver"
)

const (
	// tokenBits is how many bits of a fencing token count hand-offs; those above
	// are the Raft index at which the lock was taken.
	tokenBits = 16
	// checkedAtOnce is how many locks one transaction looks at, on any version.
	checkedAtOnce = 64
	// verifiers is how many such transactions are under way at once: holders do
	// not wait for them, and others need the server.
	verifiers = 2
)

// lease implements [driver.Lease].
type lease struct {
	backend    *Backend
	session    *session
	key, id    string
	made       bool   // the key was made by this acquisition, and goes with it
	before     []byte // the value that it found, if not
	first, n   uint64
	unanswered bool // some attempt to acquire had no answer
	began      time.Time
	queued     bool // others waited when it was taken
	deadline   atomic.Pointer[driver.Instant]
	term       atomic.Int64 // ns, that the deadline was reckoned with
	look       atomic.Pointer[func()]
	checking   atomic.Bool

	unsettled  atomic.Bool   // given to us, and our line is perhaps still in the queue
	settling   chan struct{} // has room for whoever takes it out
	confirming *time.Timer   // nil if there is nothing to say
	lost       atomic.Bool   // taken away again

	mu     sync.Mutex
	pair   *api.KVPair // as it is at the server, as far as we know
	freed  bool        // perhaps: some attempt to release had no answer
	queue  queue       // as it was at looked
	looked time.Time
}

// Deadline implements [driver.Lease]. It is in the past once the session has ended,
// or the lock was taken away.
func (l *lease) Deadline() driver.Instant {
	l.session.mu.Lock()
	defer l.session.mu.Unlock()
	if l.session.over || l.lost.Load() {
		return driver.Instant{}
	}
	return *l.deadline.Load()
}

// Term implements [driver.ProvisionalLease].
func (l *lease) Term() time.Duration { return time.Duration(l.term.Load()) }

func (l *lease) Tokens() (first, n uint64) { return l.first, l.n }

// NotifyLoss implements [driver.LossNotifier].
func (l *lease) NotifyLoss(look func()) { l.look.Store(&look) }

// extend moves the deadline to until, which was reckoned with ttl, and never back.
func (l *lease) extend(until driver.Instant, ttl time.Duration) {
	for {
		old := l.deadline.Load()
		if old != nil && old.Left() > until.Left() {
			return
		}
		if l.deadline.CompareAndSwap(old, &until) {
			l.term.Store(int64(ttl)) // later: with the term of before it is not too late
			return
		}
	}
}

func (l *lease) Renew(ctx context.Context, ttl time.Duration) error {
	return l.backend.RenewAll(ctx, []driver.Lease{l}, []time.Duration{ttl})[0]
}

// RenewAll implements [driver.BatchRenewer]. What renews a lease is that its
// session is renewed, if that was not done on behalf of others already. Then the
// locks are looked at, many at a time: an operator may have deleted one.
func (b *Backend) RenewAll(ctx context.Context, leases []driver.Lease, ttls []time.Duration) []error {
	errs := make([]error, len(leases))
	now := driver.Now()
	var renewed []int
	var confirming sync.WaitGroup // no lease waits for another's
	defer confirming.Wait()
	for i, ttl := range ttls {
		l := leases[i].(*lease)
		if l.unsettled.Load() {
			confirming.Go(func() { errs[i] = l.confirm(ctx, ttl) })
			continue
		}
		if err := l.session.reach(ctx, now.Add(ttl)); err != nil {
			errs[i] = l.renewalError(err)
			continue
		}
		l.extend(now.Add(ttl), ttl)
		renewed = append(renewed, i)
	}
	for some := range slices.Chunk(renewed, checkedAtOnce) {
		b.verify(ctx, leases, some, errs)
	}
	return errs
}

// verify sets the errors of those of leases that are no longer on their keys.
// That a server which is busy has not said so is no failure: the leases are
// renewed, and looked at again next time.
func (b *Backend) verify(ctx context.Context, leases []driver.Lease, some []int, errs []error) {
	select {
	case b.verifying <- struct{}{}:
		defer func() { <-b.verifying }()
	case <-ctx.Done():
		return
	}
	var t ops
	var checked []int
	for _, i := range some {
		l := leases[i].(*lease)
		if !l.checking.CompareAndSwap(false, true) {
			continue // on behalf of an earlier renewal
		}
		defer l.checking.Store(false)
		l.mu.Lock()
		t = append(t, unchanged(l.pair.Key, l.pair.ModifyIndex))
		l.mu.Unlock()
		checked = append(checked, i)
	}
	if len(t) == 0 {
		return
	}
	reply, err := b.read(ctx, t, false)
	if err != nil {
		return
	}
	for _, e := range reply.Errors {
		i := checked[e.OpIndex]
		if _, err := leases[i].(*lease).own(ctx); errors.Is(err, driver.ErrLost) {
			errs[i] = err
		}
	}
}

func (l *lease) renewalError(err error) error {
	if errors.Is(err, errNoSession) {
		return fmt.Errorf("%w: %w", driver.ErrLost, err)
	}
	return err
}

// own looks at the lock, and returns it if it is still this lease's, though
// somebody may have written to it: else ErrLost.
func (l *lease) own(ctx context.Context) (*api.KVPair, error) {
	v, err := l.sight(ctx)
	if err != nil {
		return nil, err
	}
	return v.pair, nil
}

// sight is own with the queue.
func (l *lease) sight(ctx context.Context) (*seen, error) {
	v, err := l.backend.look(ctx, l.key)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	p := v.pair
	// Whoever takes a lock writes an id of its own; a plain write leaves the lock
	// to its session, and LockIndex 0.
	if p == nil || p.Session != l.pair.Session || p.CreateIndex != l.pair.CreateIndex ||
		p.LockIndex != 0 && string(p.Value) != l.id {
		return nil, driver.ErrLost
	}
	l.pair = p
	return v, nil
}

// Release implements [driver.Lease].
func (l *lease) Release(ctx context.Context, _ uint64) error {
	if l.unanswered {
		if err := l.backend.fence(ctx, l.id); err != nil {
			return err
		}
	}
	l.backend.noLookout(l)
	if l.confirming != nil && !l.confirming.Stop() {
		_ = l.settle(ctx) // under way: beside it, one of the two would be in vain
	}
	for resent, first := 0, true; ; first = false {
		err := l.free(ctx, first)
		switch {
		case err == nil:
			l.session.drop(l)
			return nil
		case errors.Is(err, errNoAnswer):
			l.mu.Lock()
			l.freed = true
			l.mu.Unlock()
			if resent == len(resendAfter) || !pause(ctx, resendAfter[resent]) {
				return err
			}
			resent++
			continue
		case errors.Is(err, errMoved):
			if _, err = l.own(ctx); err == nil {
				continue
			}
		}
		if !errors.Is(err, driver.ErrLost) {
			return err
		}
		l.session.drop(l)
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.freed { // by an attempt whose answer was lost
			return nil
		}
		return err
	}
}

// free frees the lock once. The first time, the next in line may have it; should
// the queue have changed since it was seen, or that one's session have ended, it is
// simply left; and if the server keeps the key shut, as it may after a restart for a
// session that held it long before.
func (l *lease) free(ctx context.Context, first bool) error {
	if first {
		if t := l.granting(ctx); t != nil {
			_, err := l.backend.write(ctx, t)
			if !errors.Is(err, errMoved) && !errors.Is(err, errNoSession) && !errors.Is(err, errDelayed) {
				return err
			}
		}
	}
	if err := l.settle(ctx); err != nil {
		return err
	}
	_, err := l.backend.write(ctx, l.freeing())
	return err
}

// untouched reports whether the key is as we left it. l is locked.
func (l *lease) untouched() bool {
	return bytes.Equal(l.pair.Value, []byte(l.id)) && l.pair.Flags == lockFlag
}

// freeing returns what frees the lock. What somebody wrote into it meanwhile is
// not ours to delete.
func (l *lease) freeing() ops {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := *l.pair
	untouched := l.untouched()
	if untouched && !l.made {
		p.Value = l.before
	}
	return freeing(&p, untouched && l.made)
}
