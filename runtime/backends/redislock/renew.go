package redislock

import (
	"context"
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
	errs, began := make([]error, len(leases)), make([]*call, len(leases))
	for i, l := range leases {
		began[i] = &call{request: l.(*lease).renewal(ttls[i])}
	}
	b.begin(ctx, began)
	each(began, func(i int) { errs[i] = leases[i].(*lease).renew(ctx, ttls[i], began[i]) })
	return errs
}

// renewal returns the request that renews l.
func (l *lease) renewal(ttl time.Duration) request {
	r := renewScript.on(l.keys.lock, l.keys.token).with(l.id, ms(ttl))
	r.splits = true
	return r
}

// renew renews l, which began may have begun, and by the lock's own key if it must.
func (l *lease) renew(ctx context.Context, ttl time.Duration, began *call) error {
	r := l.renewal(ttl)
	c, _, err := l.backend.run(ctx, r, began)
	apart := isApart(err)
	if apart {
		r.nkeys = 1
		c, _, err = l.backend.run(ctx, r, nil)
	}
	switch {
	case err != nil:
		return err
	case c.reply.kind != ':':
		return c.reply.senseless()
	case c.reply.number == 0:
		l.backend.subscriber.letGo(l)
		return driver.ErrLost
	}
	l.extend(c.sent(), ttl)
	if apart { // where that fails the clock will have to do
		_ = l.backend.own.PExpire(ctx, l.keys.token, ttl+tokenLimit).Err()
	}
	return nil
}
