package failover

import (
	"context"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// lease implements [driver.Lease] by the lease of an engine, which an epoch allows.
type lease struct {
	engine.Wrapped
	backend *Backend
	epoch   *epoch
	offset  uint64 // of the epoch
}

// Deadline implements [driver.Lease]: the engine's, but not after the wait of a switch that was
// decided just after the last look.
func (l *lease) Deadline() driver.Instant {
	l.backend.mu.Lock()
	until := l.epoch.lastLook.Add(l.backend.terms.Bound())
	l.backend.mu.Unlock()
	return engine.Earlier(l.Lease.Deadline(), until)
}

// Tokens implements [driver.Lease].
func (l *lease) Tokens() (first, n uint64) {
	first, n = l.Lease.Tokens()
	return first + l.offset, n
}

// Renew implements [driver.Lease].
func (l *lease) Renew(ctx context.Context, ttl time.Duration) error {
	return l.backend.RenewAll(ctx, []driver.Lease{l}, []time.Duration{ttl})[0]
}

// Release implements [driver.Lease].
func (l *lease) Release(ctx context.Context, last uint64) error {
	return l.Lease.Release(ctx, last-l.offset)
}

// RenewAll implements [driver.BatchRenewer]. A lease of an epoch that is over is not renewed.
func (b *Backend) RenewAll(ctx context.Context, leases []driver.Lease, ttls []time.Duration) []error {
	b.mu.Lock()
	current := b.epoch
	b.mu.Unlock()
	return engine.RenewAt(ctx, leases, ttls, func(one driver.Lease) (driver.Backend, driver.Lease, error) {
		l := one.(*lease)
		if l.epoch != current {
			return nil, nil, errSwitched
		}
		return current.member.Backend, l.Lease, nil
	})
}
