package redislock

import (
	"context"
	"errors"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/record"
)

// RenewAll implements [driver.BatchRenewer]. Renewals go together as acquires and releases do
// (see several.go), on connections that those do not wait for.
func (b *Backend) RenewAll(ctx context.Context, leases []driver.Lease, ttls []time.Duration) []error {
	return record.RenewAll(ctx, leases, ttls, b.renewMutexes)
}

func (b *Backend) renewMutexes(ctx context.Context, leases []driver.Lease, ttls []time.Duration) []error {
	errs, firsts := make([]error, len(leases)), make([]*call, len(leases))
	for i, l := range leases {
		firsts[i] = l.(*lease).renewCall(ttls[i])
	}
	b.forEach(ctx, firsts, func(i int) { errs[i] = leases[i].(*lease).renew(ctx, ttls[i], firsts[i]) })
	return errs
}

// renewCall returns the call that renews l.
func (l *lease) renewCall(ttl time.Duration) *call {
	c := renewScript.on(l.keys.lock, l.keys.token).with(l.id, ms(ttl))
	c.renews, c.oneKeySuffices = true, true
	return c
}

// renew renews l by first.
func (l *lease) renew(ctx context.Context, ttl time.Duration, first *call) error {
	c, _, err := l.backend.run(ctx, first)
	if err == nil {
		err = c.reply.checkOwned()
	}
	if errors.Is(err, driver.ErrLost) {
		l.backend.subscriber.forget(l.id)
	}
	if err != nil {
		return err
	}
	l.extend(c.sent(), ttl)
	return nil
}
