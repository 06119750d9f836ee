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
	renewed, left int
	errs          []error
}

// batch is what one member is asked for, and its answer.
type batch struct {
	of    []int // indexes into the round's leases
	parts []*part
	errs  []error
}

// RenewAll implements [driver.BatchRenewer]: one call to each member, and it returns as soon
// as a majority has answered for each lease.
func (b *Backend) RenewAll(ctx context.Context, leases []driver.Lease, ttls []time.Duration) []error {
	r := &round{ttls: ttls, tally: make([]tally, len(leases))}
	batches := map[*member]*batch{}
	for i, one := range leases {
		l := one.(*lease)
		r.leases = append(r.leases, l)
		l.mu.Lock()
		for _, p := range l.parts {
			if p.lost {
				continue
			}
			to := batches[p.member]
			if to == nil {
				to = &batch{}
				batches[p.member] = to
			}
			to.of, to.parts = append(to.of, i), append(to.parts, p)
			r.tally[i].left++
		}
		l.mu.Unlock()
	}
	answers := make(chan *batch, len(batches))
	for m, to := range batches {
		b.begin(func() {
			r.renewAt(context.WithoutCancel(ctx), b, m, to)
			answers <- to
		})
	}
	for {
		if errs := r.results(ctx, b.majority); errs != nil {
			r.giveBack(ctx, errs)
			return errs
		}
		select {
		case to := <-answers:
			r.count(to)
		case <-ctx.Done():
		}
	}
}

// renewAt has m renew its parts.
func (r *round) renewAt(ctx context.Context, b *Backend, m *member, to *batch) {
	plain, ttls := make([]driver.Lease, len(to.of)), make([]time.Duration, len(to.of))
	for i, p := range to.parts {
		plain[i], ttls[i] = p.Lease, r.ttls[to.of[i]]
	}
	ctx, cancel := b.limited(ctx, slices.Max(ttls))
	defer cancel()
	to.errs = engine.RenewAll(ctx, m.Backend, plain, ttls)
	for i, p := range to.parts {
		if errors.Is(to.errs[i], driver.ErrLost) {
			l := r.leases[to.of[i]]
			l.mu.Lock()
			p.lost = true
			l.mu.Unlock()
			to.errs[i] = fmt.Errorf("member %q has the lease no more", m.name) // only a majority's ErrLost is one
		}
	}
}

// count adds the answer of one member to the tally.
func (r *round) count(to *batch) {
	for i, err := range to.errs {
		t := &r.tally[to.of[i]]
		t.left--
		if err == nil {
			t.renewed++
		} else {
			t.errs = append(t.errs, err)
		}
	}
}

// results returns an error or nil for each lease, or nil while that is open for some. When ctx has
// ended, no more answers are waited for.
func (r *round) results(ctx context.Context, majority int) []error {
	errs := make([]error, len(r.leases))
	for i, l := range r.leases {
		l.mu.Lock()
		holds := l.keptLocked()
		l.mu.Unlock()
		switch t := r.tally[i]; {
		case t.renewed >= majority:
		case holds < majority:
			errs[i] = driver.ErrLost
		case t.renewed+t.left < majority && holds-t.left >= majority: // else it may yet turn out to be lost
			errs[i] = errors.Join(t.errs...)
		case ctx.Err() != nil:
			errs[i] = ctx.Err()
		default:
			return nil
		}
	}
	return errs
}

// giveBack frees the lost leases where they are left, unless what is left stays. Their holders are told as
// RenewAll returns: freed before, such a lock would have another holder while the others of the round are
// waited for.
func (r *round) giveBack(ctx context.Context, errs []error) {
	for i, l := range r.leases {
		if errs[i] != driver.ErrLost || l.stays {
			continue
		}
		l.mu.Lock()
		l.beginLocked(ctx, l.first+l.n-1)
		l.mu.Unlock()
	}
}
