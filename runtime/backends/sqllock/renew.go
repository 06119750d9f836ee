package sqllock

import (
	"cmp"
	"context"
	"errors"
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

// renew renews those of part, by one statement.
func (b *Backend) renew(ctx context.Context, part []due) {
	v := values{"ttl": b.dialect.term(part[0].to)}
	for i, one := range part {
		v.lock(i, one.key, one.id)
	}
	s := b.sql.several("renew.sql", len(part), v)
	s.limit = renewalLimit(part[0].to)
	r, _, err := b.run(ctx, b.renewals, s)
	all, held := r.changed() == len(part), map[int64]int64{}
	if err == nil && !all {
		// Which of them are still ours? One that is was renewed, because an owner never comes back.
		question := b.sql.several("owned.sql", len(part), v)
		question.limit = s.limit
		var told answer
		told, _, err = b.run(ctx, b.renewals, question)
		held = numbered(told)
	}
	for i, one := range part {
		_, ours := held[int64(i)]
		switch {
		case err != nil:
			*one.err = err
		case all || ours:
			one.extend(r.sent, one.to)
		default:
			*one.err = driver.ErrLost
		}
	}
}
