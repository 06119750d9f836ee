package sqllock

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

const (
	// renewBatch is how many leases one statement renews.
	renewBatch = 100
	// leastRenewal is the least time that a renewal waits for its answer.
	leastRenewal = 100 * time.Millisecond
)

// RenewAll implements [driver.BatchRenewer]: one statement for a hundred leases, on
// a connection that acquires and releases do not wait for. Advisory and RowLock
// also ask each lock's own connection whether it still holds the lock.
func (b *Backend) RenewAll(ctx context.Context, leases []driver.Lease, ttls []time.Duration) []error {
	errs := make([]error, len(leases))
	due := make([]due, len(leases))
	for i := range leases {
		due[i].lease, due[i].to, due[i].err = leases[i].(*lease), ttls[i], &errs[i]
	}
	if b.strategy != Table {
		due = b.pins.probe(ctx, due)
	}
	b.renewer.ask(ctx, b, due)
	return errs
}

// due is one lease that a caller wants renewed, and what it is to be told.
type due struct {
	*lease
	to  time.Duration
	err *error
}

// renewalLimit is how long one attempt to renew leases, of which the shortest has
// that length, waits for its answer: so that another has as long, on a connection
// that is not stuck, and that long leases keep no short one waiting that is asked
// for meanwhile.
func renewalLimit(shortest time.Duration) time.Duration {
	return max(min(shortest/3, attemptLimit), leastRenewal)
}

// renewal is one lease to be renewed, for all callers that want it.
type renewal struct {
	*lease
	to   time.Duration
	done chan struct{}
	err  error // when done
}

// renewer sends renewals, one statement at a time. What is asked for meanwhile
// goes together in the next; a lease that waits already is not added again, so
// that a slow database gets fewer statements and not more.
type renewer struct {
	mu     sync.Mutex
	queue  []*renewal
	queued map[*lease]*renewal
	busy   bool
}

// ask has all of due renewed, and waits for that until ctx ends.
func (r *renewer) ask(ctx context.Context, b *Backend, all []due) {
	waits := make([]*renewal, len(all))
	r.mu.Lock()
	if r.queued == nil {
		r.queued = map[*lease]*renewal{}
	}
	for i, d := range all {
		w := r.queued[d.lease]
		if w == nil {
			w = &renewal{lease: d.lease, done: make(chan struct{})}
			r.queued[d.lease] = w
			r.queue = append(r.queue, w)
		}
		w.to = max(w.to, d.to)
		waits[i] = w
	}
	if !r.busy && len(r.queue) > 0 {
		r.busy = b.spawn(func() { r.run(b) })
	}
	r.mu.Unlock()
	for i, d := range all {
		select {
		case <-waits[i].done:
			*d.err = waits[i].err
		case <-ctx.Done():
			*d.err = fmt.Errorf("%w: %w", errNoAnswer, ctx.Err())
		case <-b.life.Done():
			*d.err = errClosed
		}
	}
}

// run sends until nothing is asked for.
func (r *renewer) run(b *Backend) {
	for {
		r.mu.Lock()
		part := r.queue[:min(len(r.queue), renewBatch)]
		r.queue = r.queue[len(part):]
		for _, one := range part {
			delete(r.queued, one.lease)
		}
		if len(part) == 0 {
			r.queue, r.busy = nil, false
			r.mu.Unlock()
			return
		}
		r.mu.Unlock()
		// In one order everywhere, so that two statements can't wait for each other.
		slices.SortFunc(part, func(x, y *renewal) int { return strings.Compare(x.key, y.key) })
		b.renew(part)
		for _, one := range part {
			close(one.done)
		}
	}
}

// renew renews those of one statement.
func (b *Backend) renew(part []*renewal) {
	fail := func(err error) {
		for _, one := range part {
			one.err = err
		}
	}
	v := values{}
	shortest, alike := part[0].to, true
	for i, one := range part {
		v[fmt.Sprint("key", i)] = []byte(one.key)
		v[fmt.Sprint("id", i)] = one.id
		v[fmt.Sprint("ttl", i)] = b.dialect.term(one.to)
		shortest, alike = min(shortest, one.to), alike && one.to == part[0].to
	}
	s := b.sql.renew(b.dialect, len(part), alike).with(v)
	s.limit = renewalLimit(shortest)
	ctx, cancel := context.WithTimeout(b.life, 2*s.limit)
	defer cancel()
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
	which := b.sql.which(b.dialect, len(part)).with(v)
	which.limit = s.limit
	ours, _, err := b.run(ctx, b.renewals, which)
	if err != nil {
		fail(err)
		return
	}
	fail(driver.ErrLost)
	for _, row := range ours.rows {
		if i := row[0]; i >= 0 {
			part[i].err = nil
			part[i].extend(r.sent, part[i].to)
		}
	}
	for _, one := range part {
		if one.err != nil && one.pin != nil {
			one.pin.discard() // nobody will release it
		}
	}
}

// shape is what tells the statements of renewals apart: compiled once each.
type shape struct {
	n     int
	alike bool // all leases are of one length
	which bool
}

// compiled are the statements of renewals that were needed so far.
type compiled struct {
	mu  sync.Mutex
	all map[shape]*template
}

func (c *compiled) get(s shape, compile func() *template) *template {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil {
		c.all = map[shape]*template{}
	}
	if c.all[s] == nil {
		c.all[s] = compile()
	}
	return c.all[s]
}

// series returns "{name0}, {name1}, …".
func series(name string, n int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("{%s%d}", name, i)
	}
	return strings.Join(all, ", ")
}

// renew returns the statement that renews n leases. An id belongs to one key only,
// so that two lists do for a list of pairs, and are found by the primary key.
func (s *statements) renew(d Dialect, n int, alike bool) *template {
	return s.renewing.get(shape{n: n, alike: alike}, func() *template {
		ttl := "{ttl0}"
		if !alike {
			ttl = "CASE l.owner"
			for i := range n {
				ttl += fmt.Sprintf(" WHEN {id%d} THEN {ttl%d}", i, i)
			}
			ttl += " END"
		}
		return d.compile("UPDATE {table} AS l SET expires = {greatest}(l.expires, {clock} + "+ttl+") WHERE l.name IN ("+
			series("key", n)+") AND l.owner IN ("+series("id", n)+") AND l.expires > {clock}{committed}", s.now, 0)
	})
}

// which returns the statement that tells which of n leases are not over.
func (s *statements) which(d Dialect, n int) *template {
	return s.renewing.get(shape{n: n, which: true}, func() *template {
		text := "SELECT CASE l.owner"
		for i := range n {
			text += fmt.Sprintf(" WHEN {id%d} THEN %d", i, i)
		}
		return d.compile(text+" ELSE -1 END FROM {table} AS l WHERE l.name IN ("+series("key", n)+") AND l.owner IN ("+
			series("id", n)+") AND l.expires > {clock}{committed}", s.now, 1)
	})
}
