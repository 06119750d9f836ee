package client

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"

	"github.com/lockgen/lockgen/internal/soak/history"
)

// witness wraps a backend, and records the requests of the Locker and the answers.
type witness struct {
	Backend
	out   *history.Writer
	named sync.Once
}

// newWitness wraps b in a witness that has the optional interfaces of b.
func newWitness(b Backend, out *history.Writer) driver.Backend {
	w := &witness{Backend: b, out: out}
	k, kinds := b.(kindedBackend)
	a, shares := b.(driver.Shared)
	switch {
	case kinds && shares:
		return &sharedKindedWitness{&kindedWitness{w, k}, a}
	case kinds:
		return &kindedWitness{w, k}
	case shares:
		return &sharedWitness{w, a}
	}
	return w
}

// sharedWitness is a witness of a backend that counts its Lockers.
type sharedWitness struct {
	*witness
	driver.Shared
}

// Acquire implements [driver.Backend].
func (b *witness) Acquire(ctx context.Context, a *driver.Acquisition) (driver.Lease, error) {
	b.named.Do(func() {
		name, _, _ := strings.Cut(a.ID, ":")
		b.out.End(history.Record{Op: history.Started, Lease: name, Call: b.out.Now()})
	})
	r := b.out.Begin(history.Record{Op: history.Grant, Key: a.Key, Lease: a.ID, Hold: holdOf(ctx), TTL: ttl(a.TTL), Queued: a.Queue,
		Kind: a.Mode.Kind.String(), Limit: a.Mode.Permits, Weight: a.Mode.Weight, Tick: a.Mode.Tick})
	granted, err := b.Backend.Acquire(ctx, a)
	r.Ret = b.out.Now()
	r.Outcome = outcome(err)
	if err != nil {
		r.Note = err.Error()
		b.out.End(r)
		return nil, err
	}
	r.Token, r.Tokens = granted.Tokens()
	l := &lease{Lease: granted, key: a.Key, id: a.ID, tick: a.Mode.Tick, asked: a.TTL, backend: b}
	r.Valid, r.Since = l.granted(r.Call)
	b.out.End(r)
	if a.Mode.Kind != 0 {
		return &kindedLease{l}, nil
	}
	if n, ok := granted.(driver.LossNotifier); ok {
		return &tellingLease{l, n}, nil
	}
	return l, nil
}

// Undo implements [driver.Backend].
func (b *witness) Undo(ctx context.Context, a *driver.Acquisition) error {
	r := b.out.Begin(history.Record{Op: history.Undo, Key: a.Key, Lease: a.ID})
	err := b.Backend.Undo(ctx, a)
	r.Outcome = outcome(err)
	if err != nil {
		r.Note = err.Error()
	}
	b.out.End(r)
	return err
}

// RenewAll implements [driver.BatchRenewer].
func (b *witness) RenewAll(ctx context.Context, leases []driver.Lease, ttls []time.Duration) []error {
	real := make([]driver.Lease, len(leases))
	records := make([]history.Record, len(leases))
	for i, l := range leases {
		l := l.(interface{ plain() *lease }).plain()
		real[i] = l.Lease
		records[i] = b.out.Begin(history.Record{Op: history.Renew, Key: l.key, Lease: l.id, TTL: ttl(ttls[i])})
	}
	errs := b.Backend.RenewAll(ctx, real, ttls)
	for i, r := range records {
		r.Ret = b.out.Now()
		r.Outcome = outcome(errs[i])
		r.Valid = b.validUntil(real[i])
		if errs[i] != nil {
			r.Note = errs[i].Error()
		}
		b.out.End(r)
	}
	return errs
}

// Close implements [driver.Backend].
func (b *witness) Close() error {
	r := b.out.Begin(history.Record{Op: history.Shut})
	err := b.Backend.Close()
	r.Outcome = outcome(err)
	b.out.End(r)
	return err
}

// lease wraps a lease of the engine, and records its calls.
type lease struct {
	driver.Lease
	key, id string
	tick    string
	asked   time.Duration
	backend *witness
}

// tellingLease is a lease of an engine that reports its end.
type tellingLease struct {
	*lease
	driver.LossNotifier
}

func (l *lease) plain() *lease { return l }

// Term implements [driver.ProvisionalLease].
func (l *lease) Term() time.Duration {
	if brief, ok := l.Lease.(driver.ProvisionalLease); ok {
		return brief.Term()
	}
	return l.asked
}

// Wanted implements [driver.WantedLease].
func (l *lease) Wanted() bool {
	w, ok := l.Lease.(driver.WantedLease)
	return ok && w.Wanted()
}

// brief is the length of the lease that redislock takes for a waiter: its turnLimit.
const brief = 500 * time.Millisecond

// granted returns the end of l. If l began before the call that returned it, granted also
// returns its beginning, or a time a little before, because l may have been renewed already.
func (l *lease) granted(call int64) (valid, since int64) {
	term := time.Duration(-1)
	for l.Term() != term {
		term = l.Term()
		valid = l.backend.validUntil(l.Lease)
	}
	since = valid - int64(term.Truncate(time.Millisecond))
	switch {
	case since >= call-2*int64(reading):
		return valid, 0
	case term == l.asked:
		since -= int64(brief)
	}
	return valid, since
}

func (l *lease) Renew(ctx context.Context, ttl time.Duration) error {
	return l.backend.RenewAll(ctx, []driver.Lease{l}, []time.Duration{ttl})[0]
}

func (l *lease) Release(ctx context.Context, last uint64) error {
	return l.free(history.Record{Op: history.Free, Key: l.key, Lease: l.id, Token: last}, func() error { return l.Lease.Release(ctx, last) })
}

// free records the answer of do in r.
func (l *lease) free(r history.Record, do func() error) error {
	r.Valid = l.backend.validUntil(l.Lease) // members of a quorum may have answered since its last renewal
	r = l.backend.out.Begin(r)
	err := do()
	r.Outcome = outcome(err)
	if err != nil {
		r.Note = err.Error()
	}
	l.backend.out.End(r)
	return err
}

// ttl returns d in the form that the server gets.
func ttl(d time.Duration) int64 { return int64(d.Truncate(time.Millisecond)) }

// reading is the longest time between the readings of two clocks.
const reading = 100 * time.Microsecond

// validUntil returns the deadline of l on the clock of histories, or a time a little
// before. It repeats the readings of the two clocks until they are close together.
func (b *witness) validUntil(l driver.Lease) int64 {
	for {
		before := b.out.Now()
		left := l.Deadline().Left()
		if b.out.Now()-before < int64(reading) {
			return before + int64(left)
		}
	}
}

// outcome returns what is known of the effect of a call with this error.
func outcome(err error) history.Outcome {
	var held *driver.HeldError
	switch {
	case err == nil:
		return history.OK
	case errors.Is(err, lock.ErrDone):
		return history.Done
	case errors.Is(err, lock.ErrLost):
		return history.Lost
	case errors.As(err, &held):
		return history.Fail
	case errors.Is(err, lock.ErrIndeterminate):
		return history.Unknown
	}
	return history.Fail
}
