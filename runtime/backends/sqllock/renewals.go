package sqllock

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

const (
	// maxHelpers is how many connections of db help with renewals of records.
	maxHelpers = 8
	// maxRenewConns is how many connections of Options.Renewals renew records, if it has no bound of its own.
	maxRenewConns = 32
	// renewalsPerHelper is how many renewals wait for each connection that helps.
	renewalsPerHelper = 4
)

// recordRenewals renews records, each by a statement of its own. While many wait it uses more than
// one connection: all of Options.Renewals, or some of db, though not with Advisory. No renewal waits
// for db to have a connection.
type recordRenewals struct {
	backend *Backend

	mu      sync.Mutex // guards the rest
	waiting []*renewal
	byLease map[driver.Lease]*renewal // of waiting
	working map[int]bool              // which connections work: 0 is that of renewals, the others help
}

// renewal is a renewal of one record.
type renewal struct {
	ctx   context.Context
	lease driver.Lease
	ttl   time.Duration
	err   error
	done  chan struct{} // closed once err is set
}

// renew renews l. If a renewal of l waits already, both are one.
func (r *recordRenewals) renew(ctx context.Context, l driver.Lease, ttl time.Duration) error {
	r.mu.Lock()
	item := r.byLease[l]
	if item == nil {
		item = &renewal{lease: l, done: make(chan struct{})}
		r.byLease[l] = item
		r.waiting = append(r.waiting, item)
	}
	item.ctx, item.ttl = ctx, max(item.ttl, ttl)
	helpers := len(r.waiting) / renewalsPerHelper
	if r.working[0] { // it may wait for an answer
		helpers++
	}
	for n := range 1 + min(helpers, r.backend.helpers()) {
		if !r.working[n] {
			r.working[n] = r.backend.life.Go(func(life context.Context) { r.work(life, n) })
		}
	}
	begun := r.working[0]
	r.mu.Unlock()
	if !begun {
		return driver.ErrClosed
	}
	select {
	case <-item.done:
		return item.err
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", errNotSent, ctx.Err())
	}
}

// helpers returns how many more connections may help: all of Options.Renewals, or less than half of
// those of db. None help on SQLite, where one writes at a time, or if sessions need those of db.
func (b *Backend) helpers() int {
	own, isPool := b.renewConns.(pool)
	switch most := b.db.Stats().MaxOpenConnections; {
	case b.dialect == SQLite:
		return 0
	case isPool:
		return cmp.Or(own.db.Stats().MaxOpenConnections, maxRenewConns) - 1
	case b.sessions != nil:
		return 0
	case most == 0:
		return maxHelpers
	default:
		return min((most-1)/2, maxHelpers)
	}
}

// work renews what waits by connection n, until nothing does.
func (r *recordRenewals) work(life context.Context, n int) {
	from := r.backend.renewConns
	if own, isPool := from.(pool); isPool && own.db != r.backend.db {
		from = dialLimited{own}
	}
	if _, isOne := from.(*dedicated); isOne && n > 0 {
		d := r.backend.newDedicated(true, nil)
		defer d.giveBack()
		from = d
		if conn, err := d.conn(life); err == nil {
			d.done(conn, false)
		} else {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.working[n] = false
			return
		}
	}
	for item := r.next(n); item != nil; item = r.next(n) {
		limit := renewalTimeout(item.ttl)
		ctx, cancel := context.WithTimeout(item.ctx, 2*limit) // others wait, and the Locker will ask for this one again
		item.err = item.lease.Renew(via(ctx, from, limit), item.ttl)
		cancel()
		close(item.done)
	}
}

// next returns the first renewal that waits. If there is none, connection n stops working.
func (r *recordRenewals) next(n int) *renewal {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waiting) == 0 {
		r.waiting, r.working[n] = nil, false
		return nil
	}
	item := r.waiting[0]
	r.waiting = r.waiting[1:]
	delete(r.byLease, item.lease)
	return item
}
