package sqllock

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// What a Locker takes or frees for one call goes in one statement for each batch of keys, which
// takes what is plainly free. All else is asked for as a lock by itself.
//
//	state                                  what undoes it
//	free, and the statement took it        its lease's release
//	not taken, none before it was refused  Acquire has a lease or says why not; as any other
//	not taken, behind one that was refused nothing: it was not asked for
//	the statement was sent again           Acquire finds its own row, and renews it; those behind
//	                                       one that is refused by Undo, with a tombstone
//	no answer, or not to what was taken    Undo, with a tombstone, for each
//	freed, fewer than there were           those that do not stand as they were left are lost
//	no answer to the release               each lease's own release, until answered
//
// A statement locks rows in the order of their names. One that the database ends because
// of a deadlock all the same, with a purge, has changed nothing, and is sent again.

// wanted is one of several locks, and what its caller is to be told.
type wanted struct {
	*driver.Acquisition
	lease *driver.Lease
	err   *error
}

// AcquireAll implements [driver.BatchAcquirer].
func (b *Backend) AcquireAll(ctx context.Context, as []*driver.Acquisition) ([]driver.Lease, []error) {
	leases, errs := make([]driver.Lease, len(as)), make([]error, len(as))
	var all []wanted
	for i, a := range as {
		if b.strategy == Table && check(a) == nil && a.Mode.Kind == 0 && !a.Queue {
			all = append(all, wanted{a, &leases[i], &errs[i]})
		}
	}
	slices.SortFunc(all, func(x, y wanted) int {
		return cmp.Or(cmp.Compare(x.TTL, y.TTL), cmp.Compare(x.Tokens, y.Tokens), strings.Compare(x.Key, y.Key))
	})
	b.prepareRenewals()
	b.purgeNowAndThen()
	inBatches(all, func(x, y wanted) bool { return x.TTL == y.TTL && x.Tokens == y.Tokens }, func(part []wanted) {
		if len(part) > 1 {
			b.takeRows(ctx, part)
		}
	})
	refused := false
	for i, a := range as {
		switch {
		case leases[i] != nil || errs[i] != nil:
		case refused: // the caller would give it back
			errs[i] = &driver.HeldError{RetryAfter: time.Millisecond}
		default:
			leases[i], errs[i] = b.Acquire(ctx, a)
		}
		refused = refused || errs[i] != nil
	}
	return leases, errs
}

// takeRows takes those of part whose rows are free.
func (b *Backend) takeRows(ctx context.Context, part []wanted) {
	n := part[0].Tokens
	v := values{"ttl": b.dialect.term(part[0].TTL), "n": int64(n), "instant": time.Now().UnixMicro()}
	for i, one := range part {
		v[fmt.Sprint("key", i)], v[fmt.Sprint("id", i)] = []byte(one.Key), one.ID
	}
	r, unanswered, err := b.run(ctx, b.pool, b.sql.of("acquire_all", len(part)).with(v))
	took := r.rows // none of MySQL
	if err == nil && !unanswered && b.dialect == MySQL {
		var told answer
		if told, _, err = b.run(ctx, b.pool, b.sql.of("owned", len(part)).with(v)); err != nil {
			unanswered, err = true, fmt.Errorf("%w: %w", driver.ErrIndeterminate, err)
		}
		took = told.rows
	}
	for _, one := range part {
		one.MayHaveRun = one.MayHaveRun || unanswered
		*one.err = err
	}
	if err != nil || unanswered { // then took is without what an attempt before took
		return
	}
	for _, row := range took {
		if i := row[0]; i >= 0 {
			*part[i].lease = b.newLease(part[i].Acquisition, uint64(row[1])-n+1, r.sent)
		}
	}
}

// ReleaseAll implements [driver.BatchReleaser].
func (b *Backend) ReleaseAll(ctx context.Context, leases []driver.Lease, lasts []uint64) []error {
	errs := make([]error, len(leases))
	var rows []row
	for i, one := range leases {
		if l, ok := one.(*lease); ok {
			rows = append(rows, row{lease: l, last: lasts[i], err: &errs[i]})
		} else {
			errs[i] = one.Release(ctx, lasts[i])
		}
	}
	inBatches(rows, func(row, row) bool { return true }, func(part []row) { b.freeRows(ctx, part) })
	return errs
}

// freeRows frees the rows of part. Those that some attempt had no answer for, to acquire them,
// get a tombstone after that, so that it is not what frees the row.
func (b *Backend) freeRows(ctx context.Context, part []row) {
	from, v := b.wayOf(ctx), valuesOf(part)
	r, unanswered, err := b.run(ctx, from, b.sql.of("release_all", len(part)).with(v))
	if err == nil && !unanswered && r.freed() < len(part) {
		err = b.tellLost(ctx, from, part, v)
		unanswered = err != nil
	}
	for _, one := range part {
		if unanswered && from.another() { // a session that is gone has lost its lock: a row that is not ours is a loss then
			one.freed.Store(true)
		}
		if err != nil {
			*one.err = err
		} else if one.unanswered {
			if err := b.leaveTombstone(ctx, from, one.key, one.id, time.Duration(one.ttl.Load())); err != nil {
				one.freed.Store(true)
				*one.err = err
			}
		}
	}
}

// tellLost tells which of part were lost before the release that v says. Each is, unless
// its row stands as the release has left it, or it was released before. One that another
// process has taken since then is told to be lost with those that are: they are of one call.
func (b *Backend) tellLost(ctx context.Context, from connector, part []row, v values) (err error) {
	var r answer
	if len(part) > 1 {
		if r, _, err = b.run(ctx, from, b.sql.of("released", len(part)).with(v)); err != nil {
			return err
		}
	}
	freed := r.numbers()
	for i, one := range part {
		if !one.freed.Load() && !freed[int64(i)] {
			*one.err = driver.ErrLost
		}
	}
	return nil
}
