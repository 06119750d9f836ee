package engine

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// RenewAll renews leases of b, with one call if b is a [driver.BatchRenewer].
func RenewAll(ctx context.Context, b driver.Backend, leases []driver.Lease, ttls []time.Duration) []error {
	if batching, ok := b.(driver.BatchRenewer); ok {
		return batching.RenewAll(ctx, leases, ttls)
	}
	errs := make([]error, len(leases))
	var all sync.WaitGroup
	for i, l := range leases {
		all.Go(func() { errs[i] = l.Renew(ctx, ttls[i]) })
	}
	all.Wait()
	return errs
}

// RenewAt renews each lease as what a member granted: of returns that member and its lease, or why there is nothing
// to renew. There is one call to each member. It returns when all have answered, or ctx has ended.
func RenewAt(ctx context.Context, leases []driver.Lease, ttls []time.Duration, of func(driver.Lease) (driver.Backend, driver.Lease, error)) []error {
	type batch struct {
		at    driver.Backend
		of    []int // indexes into leases
		inner []driver.Lease
		ttls  []time.Duration
	}
	errs := make([]error, len(leases))
	var batches []*batch
	for i, l := range leases {
		at, inner, err := of(l)
		if err != nil {
			errs[i] = err
			continue
		}
		n := slices.IndexFunc(batches, func(to *batch) bool { return Same(to.at, at) })
		if n < 0 {
			n, batches = len(batches), append(batches, &batch{at: at})
		}
		to := batches[n]
		to.of, to.inner, to.ttls = append(to.of, i), append(to.inner, inner), append(to.ttls, ttls[i])
	}
	var all sync.WaitGroup
	for _, to := range batches {
		all.Go(func() {
			for i, err := range RenewAll(ctx, to.at, to.inner, to.ttls) {
				errs[to.of[i]] = err
			}
		})
	}
	all.Wait()
	return errs
}
