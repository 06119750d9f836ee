package engine

import (
	"context"
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
