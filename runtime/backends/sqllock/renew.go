package sqllock

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/record"
)

// leastRenewal is the least time that a renewal waits for its answer.
const leastRenewal = 100 * time.Millisecond

// RenewAll implements [driver.BatchRenewer]: one statement for a hundred leases of one length, on
// a connection that acquires and releases do not wait for. Advisory and RowLock
// also ask each lock's own connection whether it still holds the lock. Locks that are no
// mutexes have a statement each.
func (b *Backend) RenewAll(ctx context.Context, leases []driver.Lease, ttls []time.Duration) []error {
	switch {
	case len(leases) == 0:
		return nil
	case b.sessions != nil:
		return b.sessions.renewAll(ctx, leases, ttls)
	}
	return b.renewAll(ctx, leases, ttls)
}

func (b *Backend) renewAll(ctx context.Context, leases []driver.Lease, ttls []time.Duration) []error {
	return record.RenewAll(by(ctx, b.renewals, renewalLimit(slices.Min(ttls))), leases, ttls, b.renewRows)
}

// renewRows renews leases of mutexes: those of one length together; and in one order
// everywhere, so that two statements can't wait for each other.
func (b *Backend) renewRows(ctx context.Context, leases []driver.Lease, ttls []time.Duration) []error {
	errs, rows := make([]error, len(leases)), make([]row, len(leases))
	for i, l := range leases {
		rows[i] = row{lease: l.(*lease), to: ttls[i], err: &errs[i]}
	}
	slices.SortFunc(rows, func(x, y row) int { return cmp.Or(cmp.Compare(x.to, y.to), strings.Compare(x.key, y.key)) })
	inBatches(rows, func(x, y row) bool { return x.to == y.to }, func(part []row) {
		if err := b.renew(ctx, part); err != nil {
			for _, one := range part {
				*one.err = err
			}
		}
	})
	return errs
}

// renewalLimit is how long one attempt to renew leases, of which the shortest has
// that length, waits for its answer: so that another has as long, on a connection
// that is not stuck, and that long leases keep no short one waiting that is asked
// for meanwhile.
func renewalLimit(shortest time.Duration) time.Duration {
	return max(min(shortest/3, attemptLimit), leastRenewal)
}

// renew renews those of one statement.
func (b *Backend) renew(ctx context.Context, part []row) error {
	v := valuesOf(part)
	v["ttl"] = b.dialect.term(part[0].to)
	s := b.sql.of("renew_all", len(part)).with(v)
	s.limit = renewalLimit(part[0].to)
	r, _, err := b.run(ctx, b.renewals, s)
	if err != nil {
		return err
	}
	all := int(r.affected) == len(part)
	var ours answer
	if !all {
		// Fewer rows than leases: which of them are still ours? One that is was
		// renewed, because an owner never comes back.
		question := b.sql.of("owned", len(part)).with(v)
		question.limit = s.limit
		if ours, _, err = b.run(ctx, b.renewals, question); err != nil {
			return err
		}
	}
	still := ours.numbers()
	for i, one := range part {
		if all || still[int64(i)] {
			one.extend(r.sent, one.to)
		} else {
			*one.err = driver.ErrLost
		}
	}
	return nil
}
