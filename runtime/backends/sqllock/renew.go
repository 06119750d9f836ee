package sqllock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// leastRenewal is the least time that a renewal waits for its answer.
const leastRenewal = 100 * time.Millisecond

// due is one lease that a caller wants renewed, and what it is to be told.
type due struct {
	*lease
	to  time.Duration
	err *error
}

// RenewAll implements [driver.BatchRenewer]: one statement for a hundred leases of one length, on
// a connection that acquires and releases do not wait for. Advisory and RowLock
// also ask each lock's own connection whether it still holds the lock. Locks that are no
// mutexes have a statement each.
func (b *Backend) RenewAll(ctx context.Context, leases []driver.Lease, ttls []time.Duration) []error {
	errs := make([]error, len(leases))
	if b.sessions != nil && len(leases) > 0 {
		b.sessions.probe(ctx, leases, ttls, errs)
	}
	var rows []due
	var records sync.WaitGroup
	for i, l := range leases {
		if s, ok := l.(*sessionLease); ok {
			l = s.Lease
		}
		row, ok := l.(*lease)
		switch {
		case errs[i] != nil:
		case ok:
			rows = append(rows, due{row, ttls[i], &errs[i]})
		default:
			records.Go(func() { errs[i] = l.Renew(by(ctx, b.renewals, renewalLimit(ttls[i])), ttls[i]) })
		}
	}
	// Those of one length together; and in one order everywhere, so that two statements
	// can't wait for each other.
	slices.SortFunc(rows, func(x, y due) int { return cmp.Or(cmp.Compare(x.to, y.to), strings.Compare(x.key, y.key)) })
	inBatches(rows, func(x, y due) bool { return x.to == y.to }, func(part []due) { b.renew(ctx, part) })
	records.Wait()
	for i, l := range leases {
		if s, ok := l.(*sessionLease); ok && errors.Is(errs[i], driver.ErrLost) {
			s.session.discard() // nobody will release it
		}
	}
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
func (b *Backend) renew(ctx context.Context, part []due) {
	fail := func(err error) {
		for _, one := range part {
			*one.err = err
		}
	}
	v := values{"ttl": b.dialect.term(part[0].to)}
	for i, one := range part {
		v[fmt.Sprint("key", i)] = []byte(one.key)
		v[fmt.Sprint("id", i)] = one.id
	}
	s := b.sql.batched("renew_all.sql", len(part)).with(v)
	s.limit = renewalLimit(part[0].to)
	r, _, err := b.run(ctx, b.renewals, s)
	if err != nil {
		fail(err)
		return
	}
	if int(r.affected) == len(part) {
		for _, one := range part {
			one.extend(r.sent, one.to)
		}
		return
	}
	// Fewer rows than leases: which of them are still ours? One that is was
	// renewed, because an owner never comes back.
	question := b.sql.batched("owned.sql", len(part)).with(v)
	question.limit = s.limit
	ours, _, err := b.run(ctx, b.renewals, question)
	if err != nil {
		fail(err)
		return
	}
	fail(driver.ErrLost)
	for _, row := range ours.rows {
		if i := row[0]; i >= 0 {
			*part[i].err = nil
			part[i].extend(r.sent, part[i].to)
		}
	}
}
