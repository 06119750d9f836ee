package quorum

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// round is one call of RenewAll.
type round struct {
	leases []*lease
	ttls   []time.Duration
	tally  []tally // one for each lease
}

type tally struct {
	renewed, pending int
	errs             []error
}

// memberBatch is what one member is asked to renew, and its answer.
type memberBatch struct {
	indexes []int // of the round's leases
	parts   []*part
	errs    []error
}

// RenewAll implements [driver.BatchRenewer]: one call to each member, and it returns as soon
// as a majority has answered for each lease.
func (b *Backend) RenewAll(ctx context.Context, leases []driver.Lease, ttls []time.Duration) []error {
	r := &round{ttls: ttls, tally: make([]tally, len(leases))}
	batches := map[*member]*memberBatch{}
	for i, one := range leases {
		l := one.(*lease)
		r.leases = append(r.leases, l)
		l.mu.Lock()
		for _, p := range l.parts {
			if p.lost {
				continue
			}
			batch := batches[p.member]
			if batch == nil {
				batch = &memberBatch{}
				batches[p.member] = batch
			}
			batch.indexes, batch.parts = append(batch.indexes, i), append(batch.parts, p)
			r.tally[i].pending++
		}
		l.mu.Unlock()
	}
	answers := make(chan *memberBatch, len(batches))
	for m, batch := range batches {
		b.begin(func() {
			r.renewAt(context.WithoutCancel(ctx), b, m, batch)
			answers <- batch
		})
	}
	for {
		if errs := r.results(ctx, b.majority); errs != nil {
			r.giveBack(ctx, errs)
			return errs
		}
		select {
		case batch := <-answers:
			r.count(batch)
		case <-ctx.Done():
		}
	}
}

// renewAt has m renew its parts.
func (r *round) renewAt(ctx context.Context, b *Backend, m *member, batch *memberBatch) {
	plain, ttls := make([]driver.Lease, len(batch.indexes)), make([]time.Duration, len(batch.indexes))
	for i, p := range batch.parts {
		plain[i], ttls[i] = p.Lease, r.ttls[batch.indexes[i]]
	}
	ctx, cancel := b.limited(ctx, slices.Max(ttls))
	defer cancel()
	batch.errs = engine.RenewAll(ctx, m.Backend, plain, ttls)
	for i, p := range batch.parts {
		if errors.Is(batch.errs[i], driver.ErrLost) {
			l := r.leases[batch.indexes[i]]
			l.mu.Lock()
			p.lost = true
			l.mu.Unlock()
			batch.errs[i] = fmt.Errorf("member %q has the lease no more", m.name) // only a majority's ErrLost is one
		}
	}
}

// count adds the answer of one member to the tally.
func (r *round) count(batch *memberBatch) {
	for i, err := range batch.errs {
		t := &r.tally[batch.indexes[i]]
		t.pending--
		if err == nil {
			t.renewed++
		} else {
			t.errs = append(t.errs, err)
		}
	}
}

// results returns the result for each lease, or nil while the result of some lease is open. Once ctx
// has ended none is.
func (r *round) results(ctx context.Context, majority int) []error {
	errs := make([]error, len(r.leases))
	for i, l := range r.leases {
		l.mu.Lock()
		holds := l.heldLocked()
		l.mu.Unlock()
		switch t := r.tally[i]; {
		case t.renewed >= majority:
		case holds < majority:
			errs[i] = driver.ErrLost
		case t.renewed+t.pending < majority && holds-t.pending >= majority: // else it may still turn out to be lost
			errs[i] = errors.Join(t.errs...)
		case ctx.Err() != nil:
			errs[i] = ctx.Err()
		default:
			return nil
		}
	}
	return errs
}

// giveBack releases the remaining parts of lost leases, except those with keepWhenLost. It is called when
// RenewAll returns, which tells the holders. If it were called sooner, a lock could have another holder while
// RenewAll waits for the other leases of the round.
func (r *round) giveBack(ctx context.Context, errs []error) {
	for i, l := range r.leases {
		if errs[i] != driver.ErrLost || l.keepWhenLost {
			continue
		}
		l.mu.Lock()
		l.beginReleaseLocked(ctx, l.first+l.n-1)
		l.mu.Unlock()
	}
}
