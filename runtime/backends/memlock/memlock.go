// Package memlock is a lock backend in this process's memory: for tests, for
// development, and for services that run as one process. Lockers that share
// one Backend exclude each other as processes on one engine would.
package memlock

import (
	"context"
	"sync"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// Backend holds locks in memory. Make it with [New]; its methods may be called
// from any number of goroutines.
type Backend struct {
	mu    sync.Mutex
	keys  map[string]*record
	sweep int // acquires left until expired records are looked for
}

// record is one key that is held, wanted, or was held a moment ago.
type record struct {
	owner   string    // the acquisition's id; empty when free
	expires time.Time // of the lease
	last    uint64    // the highest fencing token that is reserved or was used
	waiting []*subscription

	turn     *subscription // whose turn it is while the key is free; nil: anyone's
	turnEnds time.Time
}

// turnLimit is how long a free key is kept for the Locker whose turn it is.
const turnLimit = 100 * time.Millisecond

// New returns an empty Backend. It starts no goroutine.
func New() *Backend {
	return &Backend{keys: map[string]*record{}}
}

// Acquire implements [driver.Backend].
func (b *Backend) Acquire(_ context.Context, a *driver.Acquisition) (driver.Lease, error) {
	sent := driver.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now() // not before: tokens rise with the clock while a record is forgotten
	b.purge(now)
	r := b.keys[a.Key]
	if r == nil {
		r = &record{}
		b.keys[a.Key] = r
	}
	if r.owner != "" && r.owner != a.ID {
		if left := r.expires.Sub(now); left > 0 {
			return nil, &driver.HeldError{RetryAfter: left}
		}
	}
	if r.turn != nil && r.turn.locker != lockerOf(a) {
		if left := r.turnEnds.Sub(now); left > 0 {
			return nil, &driver.HeldError{RetryAfter: left}
		}
	}
	first := max(r.last+1, floor(now))
	r.turn = nil
	r.owner, r.expires, r.last = a.ID, now.Add(a.TTL), first+a.Tokens-1
	l := &lease{backend: b, key: a.Key, id: a.ID, first: first, n: a.Tokens}
	l.deadline = sent.Add(a.TTL)
	return l, nil
}

// floor is the lowest first token at a time: it keeps tokens rising after a
// record was forgotten.
func floor(now time.Time) uint64 {
	return uint64(now.UnixMicro()) * driver.TokensPerMicrosecond
}

// Undo implements [driver.Backend]. Acquire is never indeterminate in memory, but
// it may be to whoever wraps b, to lose answers in a test.
func (b *Backend) Undo(_ context.Context, a *driver.Acquisition) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r := b.keys[a.Key]; r != nil && r.owner == a.ID {
		r.owner, r.expires = "", time.Time{}
		b.settle(a.Key, r, time.Now())
	}
	return nil
}

// Close implements [driver.Backend]. It does nothing: another Locker may go on
// using b, and b holds nothing but memory.
func (b *Backend) Close() error { return nil }

// Ping implements [driver.Pinger]: memory is always there.
func (b *Backend) Ping(context.Context) error { return nil }

// RenewAll implements [driver.BatchRenewer].
func (b *Backend) RenewAll(ctx context.Context, leases []driver.Lease, ttls []time.Duration) []error {
	errs := make([]error, len(leases))
	for i, l := range leases {
		errs[i] = l.Renew(ctx, ttls[i])
	}
	return errs
}

// settle gives a key that is free to the one that waits longest, or forgets it.
func (b *Backend) settle(key string, r *record, now time.Time) {
	switch {
	case len(r.waiting) > 0:
		r.turn, r.turnEnds = r.waiting[0], now.Add(turnLimit)
		r.waiting = append(r.waiting[1:], r.turn)
		select {
		case r.turn.c <- struct{}{}:
		default:
		}
	case r.last < floor(now):
		delete(b.keys, key)
	}
}

// purge forgets, now and then, what ended without a release.
func (b *Backend) purge(now time.Time) {
	if b.sweep--; b.sweep > 0 {
		return
	}
	for key, r := range b.keys {
		if !now.Before(r.expires) && len(r.waiting) == 0 && r.last < floor(now) {
			delete(b.keys, key)
		}
	}
	b.sweep = max(1024, len(b.keys))
}

// lease implements [driver.Lease].
type lease struct {
	backend  *Backend
	key, id  string
	first, n uint64
	deadline driver.Instant // guarded by the backend's mutex
}

func (l *lease) Deadline() driver.Instant {
	l.backend.mu.Lock()
	defer l.backend.mu.Unlock()
	return l.deadline
}

func (l *lease) Tokens() (first, n uint64) { return l.first, l.n }

func (l *lease) Renew(_ context.Context, ttl time.Duration) error {
	sent := driver.Now()
	b := l.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	r := b.keys[l.key]
	if r == nil || r.owner != l.id || !now.Before(r.expires) {
		return driver.ErrLost
	}
	if end := now.Add(ttl); end.After(r.expires) { // it never shortens a lease
		r.expires = end
		l.deadline = sent.Add(ttl)
	}
	return nil
}

func (l *lease) Release(_ context.Context, last uint64) error {
	b := l.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	r := b.keys[l.key]
	if r == nil || r.owner != l.id {
		return driver.ErrLost
	}
	expired := !now.Before(r.expires)
	r.owner, r.expires, r.last = "", time.Time{}, last
	b.settle(l.key, r, now)
	if expired {
		return driver.ErrLost
	}
	return nil
}
