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

// RenewAt renews each lease at the member that granted it. resolve returns that member and its
// lease, or the reason why there is nothing to renew. RenewAt calls each member once. It returns
// when all have answered, or when ctx has ended.
func RenewAt(ctx context.Context, leases []driver.Lease, ttls []time.Duration, resolve func(driver.Lease) (driver.Backend, driver.Lease, error)) []error {
	type batch struct {
		member  driver.Backend
		indexes []int // into leases
		inner   []driver.Lease
		ttls    []time.Duration
	}
	errs := make([]error, len(leases))
	var batches []*batch
	for i, l := range leases {
		member, inner, err := resolve(l)
		if err != nil {
			errs[i] = err
			continue
		}
		n := slices.IndexFunc(batches, func(b *batch) bool { return Same(b.member, member) })
		if n < 0 {
			n, batches = len(batches), append(batches, &batch{member: member})
		}
		b := batches[n]
		b.indexes, b.inner, b.ttls = append(b.indexes, i), append(b.inner, inner), append(b.ttls, ttls[i])
	}
	var all sync.WaitGroup
	for _, b := range batches {
		all.Go(func() {
			for i, err := range RenewAll(ctx, b.member, b.inner, b.ttls) {
				errs[b.indexes[i]] = err
			}
		})
	}
	all.Wait()
	return errs
}
