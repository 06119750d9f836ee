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
	errs := make([]error, len(leases))
	var others []int
	var rest []driver.Lease
	var lengths []time.Duration
	var all sync.WaitGroup
	room := make(chan struct{}, renewalsAtOnce)
	for i, l := range leases {
		if _, ok := l.(*lease); !ok {
			others, rest, lengths = append(others, i), append(rest, l), append(lengths, ttls[i])
			continue
		}
		all.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			errs[i] = l.Renew(ctx, ttls[i])
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
