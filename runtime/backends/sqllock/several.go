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
// takes what is plainly free. All else is asked for as a lock by itself. DESIGN.md tells what
// undoes each.
//
// A statement locks rows in the order of their names. One that the database ends because
// of a deadlock all the same, with a purge, has changed nothing, and is sent again.

// wanted is one of several locks, and what its caller is to be told: neither a lease nor an
// error if its row was not plainly free.
type wanted struct {
	*driver.Acquisition
	tried bool // a statement was to take it
	lease driver.Lease
	err   error
}

// AcquireAll implements [driver.BatchAcquirer].
func (b *Backend) AcquireAll(ctx context.Context, as []*driver.Acquisition) ([]driver.Lease, []error) {
	all := make([]*wanted, len(as))
	var rows []*wanted
	for i, a := range as {
		all[i] = &wanted{Acquisition: a}
		if b.strategy == Table && check(a) == nil && a.Mode.Kind == 0 && !a.Queue {
			rows = append(rows, all[i])
		}
	}
	b.prepareRenewals()
	b.purgeNowAndThen()
	b.takeBatches(ctx, rows)
	leases, errs := make([]driver.Lease, len(as)), make([]error, len(as))
	refused := false
	for i, one := range all {
		switch {
		case one.lease != nil || one.err != nil:
		case refused: // the caller would give it back
			one.err = &driver.HeldError{RetryAfter: time.Millisecond}
		case one.tried:
			one.lease, one.err = b.takeSeen(ctx, one.Acquisition)
		default:
			one.lease, one.err = b.Acquire(ctx, one.Acquisition)
		}
		leases[i], errs[i] = one.lease, one.err
		refused = refused || one.err != nil
	}
	return leases, errs
}

// takeBatches takes those of all whose rows are free.
func (b *Backend) takeBatches(ctx context.Context, all []*wanted) {
	order := func(x, y *wanted) int { return cmp.Or(cmp.Compare(x.TTL, y.TTL), cmp.Compare(x.Tokens, y.Tokens)) }
	slices.SortFunc(all, func(x, y *wanted) int { return cmp.Or(order(x, y), strings.Compare(x.Key, y.Key)) })
	// Two Lockers may ask for one key, which no statement can take twice.
	all = slices.CompactFunc(all, func(x, y *wanted) bool { return order(x, y) == 0 && x.Key == y.Key })
	inBatches(all, func(x, y *wanted) bool { return order(x, y) == 0 }, func(part []*wanted) { b.takeFree(ctx, part) })
}

// takeFree takes those of part whose rows are free and that nobody waits for, by one statement.
func (b *Backend) takeFree(ctx context.Context, part []*wanted) {
	v := values{"ttl": b.dialect.term(part[0].TTL), "n": int64(part[0].Tokens), "instant": time.Now().UnixMicro()}
	for i, one := range part {
		v.lock(i, one.Key, one.ID)
	}
	r, unanswered, err := b.run(ctx, b.sql.several("take.sql", len(part), v))
	took := numbered(r)
	if err == nil && !unanswered && b.dialect == MySQL {
		if took, err = b.tookMySQL(ctx, r, v, len(part)); err != nil {
			unanswered, err = true, fmt.Errorf("%w: %w", driver.ErrIndeterminate, err)
		}
	}
	for i, one := range part {
		one.tried, one.err = true, err
		one.MayHaveRun = one.MayHaveRun || unanswered
		// After an attempt without an answer, took is without what that took.
		if version, ok := took[int64(i)]; ok && err == nil && !unanswered {
			one.lease = b.newLease(one.Acquisition, version, r.sent)
		}
	}
}

// numbered returns the highest tokens of locks by their numbers, as a statement on several has
// answered.
func numbered(said answer) map[int64]int64 {
	all := map[int64]int64{}
	for i := range said.rows {
		if n := said.number(i, 0); n >= 0 {
			all[n] = said.number(i, 1)
		}
	}
	return all
}

// tookMySQL returns the numbers and the highest tokens of those of n locks that the statement
// with answer r took.
func (b *Backend) tookMySQL(ctx context.Context, r answer, v values, n int) (map[int64]int64, error) {
	took := map[int64]int64{}
	switch {
	case r.affected == 0, n == 1 && r.insertID < leastToken:
	case n == 1, r.insertID >= leastToken && r.affected == int64(2*n):
		for i := range int64(n) {
			took[i] = r.insertID
		}
	default:
		told, _, err := b.run(ctx, b.sql.several("owned.sql", n, v))
		return numbered(told), err
	}
	return took, nil
}

// freeing is one lease to be released with others, and what its caller is to be told.
type freeing struct {
	*lease
	last uint64
	err  *error
}

// ReleaseAll implements [driver.BatchReleaser].
func (b *Backend) ReleaseAll(ctx context.Context, leases []driver.Lease, lasts []uint64) []error {
	errs := make([]error, len(leases))
	var rows []freeing
	for i, one := range leases {
		if l, ok := one.(*lease); ok && l.isPlain() {
			rows = append(rows, freeing{l, lasts[i], &errs[i]})
		} else {
			errs[i] = one.Release(ctx, lasts[i])
		}
	}
	b.free(ctx, rows)
	return errs
}

// free frees the rows of all.
func (b *Backend) free(ctx context.Context, all []freeing) {
	slices.SortFunc(all, func(x, y freeing) int { return strings.Compare(x.key, y.key) })
	var several []freeing
	for i, one := range all {
		// A statement gives each row one last token, and of two leases on a key one is lost.
		if i > 0 && one.key == all[i-1].key {
			b.freeRows(ctx, []freeing{one})
		} else {
			several = append(several, one)
		}
	}
	inBatches(several, func(_, _ freeing) bool { return true }, func(part []freeing) { b.freeRows(ctx, part) })
}

// freeRows frees the rows of part, by one statement.
func (b *Backend) freeRows(ctx context.Context, part []freeing) {
	v := values{}
	for i, one := range part {
		v.lock(i, one.key, one.id)
		v[fmt.Sprint("last", i)] = int64(one.last)
	}
	r, unanswered, err := b.run(ctx, b.sql.several("release.sql", len(part), v))
	if err == nil && !unanswered && r.changed() < len(part) {
		err = b.tellLost(ctx, part)
		unanswered = err != nil
	}
	for _, one := range part {
		// If there is an answer nevertheless, an attempt before it may have freed the rest. A session
		// that is gone has lost its lock: a row that is not ours is a loss then.
		if unanswered && b.way(ctx).another() {
			one.freed.Store(true)
		}
		*one.err = cmp.Or(err, *one.err)
	}
}

// tellLost tells which of part were lost before they were to be released. Each is, unless its
// row stands as the release has left it, or it was released before. One that another process
// has taken since then can't be told from those, and is told to be lost with them.
func (b *Backend) tellLost(ctx context.Context, part []freeing) error {
	for _, one := range part {
		if one.freed.Load() {
			continue
		}
		if len(part) > 1 {
			r, err := b.look(ctx, one.key)
			if err != nil {
				return err
			}
			if r.owner == "" && r.version == int64(one.last) {
				continue
			}
		}
		*one.err = driver.ErrLost
	}
	return nil
}
