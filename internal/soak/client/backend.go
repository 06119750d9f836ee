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

// witness is a backend that writes down what the Locker asks of it and what it
// answers.
type witness struct {
	Backend
	out   *history.Writer
	named sync.Once
}

// newWitness returns b with a witness, which has the optional interfaces of b.
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

// lease is the engine's, with a witness.
type lease struct {
	driver.Lease
	key, id string
	tick    string
	asked   time.Duration
	backend *witness
}

// tellingLease is a lease whose engine tells of its end.
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

// brief is for how long redislock takes a lock for one who waits: its turnLimit.
const brief = 500 * time.Millisecond

// granted returns until when l lasts and, if it began before the call that returned
// it, since when, or a little before: it may have been renewed already.
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

// free records as r what do answers.
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

// ttl returns d as the server is told it.
func ttl(d time.Duration) int64 { return int64(d.Truncate(time.Millisecond)) }

// reading is how long the readings of two clocks may be apart.
const reading = 100 * time.Microsecond

// validUntil returns the deadline of l on the clock of histories, or a little
// before: the readings of two clocks are tried until they are close.
func (b *witness) validUntil(l driver.Lease) int64 {
	for {
		before := b.out.Now()
		left := l.Deadline().Left()
		if b.out.Now()-before < int64(reading) {
			return before + int64(left)
		}
	}
}

// outcome says of a backend's error what is known of the effect.
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
