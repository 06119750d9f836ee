package record

import (
	"context"
	"sync"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// renewalsAtOnce is how many records are renewed at the same time: each is a request.
const renewalsAtOnce = 32

// RenewAll is [driver.BatchRenewer.RenewAll] of a Backend that has mutexes as well, which
// it renews by mutexes, all in one call. Both go on at the same time.
func RenewAll(ctx context.Context, leases []driver.Lease, ttls []time.Duration,
	mutexes func(ctx context.Context, leases []driver.Lease, ttls []time.Duration) []error) []error {
	var records, others []int
	var rest []driver.Lease
	var lengths []time.Duration
	for i, l := range leases {
		if _, ok := l.(*lease); ok {
			records = append(records, i)
			continue
		}
		others, rest, lengths = append(others, i), append(rest, l), append(lengths, ttls[i])
	}
	if len(records) == 0 {
		return mutexes(ctx, leases, ttls)
	}
	errs := make([]error, len(leases))
	var all sync.WaitGroup
	for first := range min(renewalsAtOnce, len(records)) {
		all.Go(func() {
			for n := first; n < len(records); n += renewalsAtOnce {
				i := records[n]
				errs[i] = leases[i].Renew(ctx, ttls[i])
			}
		})
	}
	if len(rest) > 0 {
		for n, err := range mutexes(ctx, rest, lengths) {
			errs[others[n]] = err
		}
	}
	all.Wait()
	return errs
}
