package sqllock

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// lease implements [driver.Lease]: a row of the table.
type lease struct {
	backend    *Backend
	key, id    string
	first, n   uint64        // tokens
	ttl        time.Duration // that was asked for
	deadline   engine.Deadline
	unanswered bool        // some attempt to acquire had no answer: a copy may yet arrive
	mayBeFreed atomic.Bool // some attempt to release had no answer
}

// newLease returns the lease of a. Its row has version as the highest token, and was written
// after sent.
func (b *Backend) newLease(a *driver.Acquisition, version int64, sent driver.Instant) *lease {
	l := &lease{backend: b, key: a.Key, id: a.ID, first: uint64(version) - a.Tokens + 1, n: a.Tokens, ttl: a.TTL, unanswered: a.MayHaveRun}
	l.extend(sent, a.TTL)
	return l
}

func (l *lease) Deadline() driver.Instant { return l.deadline.Get() }

func (l *lease) Tokens() (first, n uint64) { return l.first, l.n }

// extend notes that the row lasts for ttl after sent at least: the statement shortens no lease.
func (l *lease) extend(sent driver.Instant, ttl time.Duration) {
	l.deadline.Extend(sent.Add(ttl.Truncate(time.Microsecond))) // as the server was told
}

func (l *lease) Renew(ctx context.Context, ttl time.Duration) error {
	return l.backend.RenewAll(ctx, []driver.Lease{l}, []time.Duration{ttl})[0]
}

// batchable reports whether l may be released in a batch. A lease that may be over is released by
// itself: where a batch frees fewer rows than it has, it is not always clear which.
func (l *lease) batchable() bool {
	return !l.unanswered && l.backend.sessions == nil && l.deadline.Get().Left() > 0
}

func (l *lease) Release(ctx context.Context, last uint64) error {
	if l.batchable() {
		if l.backend.releases.goAlone() {
			defer l.backend.releases.doneAlone()
		} else if err := l.releaseBatched(ctx, last); !errors.Is(err, errNotSent) || ctx.Err() != nil {
			return err
		}
	}
	return l.release(ctx, last)
}

// release frees the row, and makes sure that no copy of the acquire that is still on its way takes it.
func (l *lease) release(ctx context.Context, last uint64) error {
	var lost error
	l.backend.releaseRows(ctx, []releaseItem{{l, last, &lost}})
	if !l.unanswered || lost != nil && !errors.Is(lost, driver.ErrLost) {
		return lost
	}
	_, err := l.backend.updateRow(ctx, l.key, func(r *rowView) error { // after the release, which tells whether the lock was lost
		r.tombstone(l.id, l.ttl+tombstoneMargin)
		return nil
	})
	if err != nil {
		l.mayBeFreed.Store(true)
	}
	return cmp.Or(err, lost)
}

// minRenewalTimeout is the least time that a renewal waits for its answer.
const minRenewalTimeout = 100 * time.Millisecond

// renewItem is one lease of a batch to be renewed, and where its error goes.
type renewItem struct {
	*lease
	ttl time.Duration
	err *error
}

// RenewAll implements [driver.BatchRenewer]: one statement for a hundred leases of one length, on
// a connection that acquires and releases do not wait for. Advisory and RowLock
// also ask each lock's own connection whether it still holds the lock. Locks that are no
// mutexes have a statement each, see recordRenewals.
func (b *Backend) RenewAll(ctx context.Context, leases []driver.Lease, ttls []time.Duration) []error {
	errs := make([]error, len(leases))
	if b.sessions != nil && len(leases) > 0 {
		b.sessions.probeAll(ctx, leases, ttls, errs)
	}
	var rows []renewItem
	var records sync.WaitGroup
	for i, l := range leases {
		if s, ok := l.(*sessionLease); ok {
			l = s.Lease
		}
		row, ok := l.(*lease)
		switch {
		case errs[i] != nil:
		case ok:
			rows = append(rows, renewItem{row, ttls[i], &errs[i]})
		default:
			records.Go(func() { errs[i] = b.records.renew(ctx, l, ttls[i]) })
		}
	}
	// A batch has leases of one length. All statements lock rows in one order, so that two
	// can't wait for each other.
	slices.SortFunc(rows, func(x, y renewItem) int { return cmp.Or(cmp.Compare(x.ttl, y.ttl), strings.Compare(x.key, y.key)) })
	inBatches(rows, func(x, y renewItem) bool { return x.ttl == y.ttl }, func(part []renewItem) { b.renew(ctx, part) })
	records.Wait()
	for i, l := range leases {
		if s, ok := l.(*sessionLease); ok && errors.Is(errs[i], driver.ErrLost) && !s.releasing.Load() {
			s.session.discard() // nobody will release it
		}
	}
	return errs
}

// renewalTimeout is how long an attempt to renew leases waits for its answer, if the
// shortest of them has this length. It leaves time for a second attempt on a
// connection that is not stuck, and long leases do not delay a short one for longer.
func renewalTimeout(shortest time.Duration) time.Duration {
	return max(min(shortest/3, attemptLimit), minRenewalTimeout)
}

// renew renews the leases of part, by one statement.
func (b *Backend) renew(ctx context.Context, part []renewItem) {
	v := values{"ttl": b.dialect.leaseMicros(part[0].ttl)}
	for i, item := range part {
		v.lock(i, item.key, item.id)
	}
	ask := func(file string) (answer, error) {
		reply, _, err := b.run(via(ctx, b.renewConns, renewalTimeout(part[0].ttl)), b.sql.batch(file, len(part), v))
		return reply, err
	}
	r, err := ask("renew.sql")
	all, held := r.changed() == len(part), map[int64]int64{}
	if err == nil && !all {
		// A lease that is ours now was ours at the renewal: an owner never comes back.
		var owned answer
		owned, err = ask("owned.sql")
		held = tokensByNumber(owned)
	}
	for i, item := range part {
		_, ours := held[int64(i)]
		switch {
		case err != nil:
			*item.err = err
		case all || ours:
			item.extend(r.sent, item.ttl)
		default:
			*item.err = driver.ErrLost
		}
	}
}
