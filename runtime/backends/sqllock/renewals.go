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
	// helpersMost is how many connections of db help with renewals of records.
	helpersMost = 8
	// renewalsMost is how many of Options.Renewals there are for them, if that has no bound of its own.
	renewalsMost = 32
	// helperShare is how many renewals wait for each of them.
	helperShare = 4
)

// recordRenewals are those of records, which have a statement each. While many wait they go by more
// connections than one: by all of Options.Renewals, or else by some of db, and none waits for one of
// these; with Advisory by none of db.
type recordRenewals struct {
	backend *Backend

	mu      sync.Mutex // guards the rest
	waiting []*renewal
	queued  map[driver.Lease]*renewal // those that wait
	works   map[int]bool              // on the connection of renewals, and on those that help
}

// renewal is that of one record.
type renewal struct {
	ctx   context.Context
	lease driver.Lease
	ttl   time.Duration
	err   error
	done  chan struct{} // closed once err is set
}

// renew renews l, by the renewal of it that waits already if there is one.
func (r *recordRenewals) renew(ctx context.Context, l driver.Lease, ttl time.Duration) error {
	r.mu.Lock()
	one := r.queued[l]
	if one == nil {
		one = &renewal{lease: l, done: make(chan struct{})}
		r.queued[l] = one
		r.waiting = append(r.waiting, one)
	}
	one.ctx, one.ttl = ctx, max(one.ttl, ttl)
	helpers := len(r.waiting) / helperShare
	if r.works[0] { // and may be held up by one
		helpers++
	}
	for n := range 1 + min(helpers, r.backend.helpers()) {
		if !r.works[n] {
			r.works[n] = r.backend.life.Go(func(life context.Context) { r.work(life, n) })
		}
	}
	begun := r.works[0]
	r.mu.Unlock()
	if !begun {
		return driver.ErrClosed
	}
	select {
	case <-one.done:
		return one.err
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", errNotSent, ctx.Err())
	}
}

// helpers returns how many more connections may help: all of Options.Renewals, or less than half of db.
// Those who write to a file take turns, and locks of sessions need db's.
func (b *Backend) helpers() int {
	own, isPool := b.renewConns.(pool)
	switch most := b.db.Stats().MaxOpenConnections; {
	case b.dialect == SQLite:
		return 0
	case isPool:
		return cmp.Or(own.db.Stats().MaxOpenConnections, renewalsMost) - 1
	case b.sessions != nil:
		return 0
	case most == 0:
		return helpersMost
	default:
		return min((most-1)/2, helpersMost)
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
			r.works[n] = false
			return
		}
	}
	for one := r.next(n); one != nil; one = r.next(n) {
		limit := renewalLimit(one.ttl)
		ctx, cancel := context.WithTimeout(one.ctx, 2*limit) // others wait, and this one is asked for again
		one.err = one.lease.Renew(via(ctx, from, limit), one.ttl)
		cancel()
		close(one.done)
	}
}

// next returns the first that waits. If there is none, connection n works no more.
func (r *recordRenewals) next(n int) *renewal {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waiting) == 0 {
		r.waiting, r.works[n] = nil, false
		return nil
	}
	one := r.waiting[0]
	r.waiting = r.waiting[1:]
	delete(r.queued, one.lease)
	return one
}
