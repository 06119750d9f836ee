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
	var all []*wanted
	for i, a := range as {
		if b.strategy == Table && check(a) == nil && a.Mode.Kind == 0 && !a.Queue {
			all = append(all, &wanted{a, &leases[i], &errs[i]})
		}
	}
	b.prepareRenewals()
	b.purgeNowAndThen()
	b.takeFree(ctx, all)
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

// takeFree takes those of all whose rows are free. One that is alone in a batch it leaves.
func (b *Backend) takeFree(ctx context.Context, all []*wanted) {
	slices.SortFunc(all, func(x, y *wanted) int {
		return cmp.Or(cmp.Compare(x.TTL, y.TTL), cmp.Compare(x.Tokens, y.Tokens), strings.Compare(x.Key, y.Key))
	})
	// Two Lockers may ask for one key, which no statement can take twice.
	all = slices.CompactFunc(all, func(x, y *wanted) bool { return x.TTL == y.TTL && x.Tokens == y.Tokens && x.Key == y.Key })
	inBatches(all, func(x, y *wanted) bool { return x.TTL == y.TTL && x.Tokens == y.Tokens }, func(part []*wanted) {
		if len(part) > 1 {
			b.takeRows(ctx, part)
		}
	})
}

// takeRows takes those of part whose rows are free.
func (b *Backend) takeRows(ctx context.Context, part []*wanted) {
	n := part[0].Tokens
	v := values{"ttl": b.dialect.term(part[0].TTL), "n": int64(n), "instant": time.Now().UnixMicro()}
	for i, one := range part {
		v[fmt.Sprint("key", i)], v[fmt.Sprint("id", i)] = []byte(one.Key), one.ID
	}
	take := map[bool]string{true: "acquire_all_mysql.sql", false: "acquire_all.sql"}[b.dialect == MySQL]
	r, unanswered, err := b.run(ctx, b.pool, b.sql.batched(take, len(part)).with(v))
	took := r.rows // none of MySQL
	if err == nil && !unanswered && b.dialect == MySQL {
		var told answer
		if told, _, err = b.run(ctx, b.pool, b.sql.batched("owned.sql", len(part)).with(v)); err != nil {
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
			b.pollers.tell(part[i].Acquisition, false)
		}
	}
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
	var all []*freeing
	for i, one := range leases {
		if l, ok := one.(*lease); ok && !l.unanswered {
			all = append(all, &freeing{l, lasts[i], &errs[i]})
		} else {
			errs[i] = one.Release(ctx, lasts[i])
		}
	}
	b.free(ctx, all)
	return errs
}

// free frees the rows of all.
func (b *Backend) free(ctx context.Context, all []*freeing) {
	slices.SortFunc(all, func(x, y *freeing) int { return strings.Compare(x.key, y.key) })
	var several []*freeing
	for i, one := range all {
		// A statement gives each row one last token, and of two leases on a key one is lost.
		if len(all) == 1 || i > 0 && one.key == all[i-1].key {
			*one.err = one.release(ctx, b.pool, one.last)
		} else {
			several = append(several, one)
		}
	}
	inBatches(several, func(_, _ *freeing) bool { return true }, func(part []*freeing) { b.freeRows(ctx, part) })
}

// freeRows frees the rows of part.
func (b *Backend) freeRows(ctx context.Context, part []*freeing) {
	v := values{}
	for i, one := range part {
		v[fmt.Sprint("key", i)], v[fmt.Sprint("id", i)], v[fmt.Sprint("last", i)] = []byte(one.key), one.id, int64(one.last)
	}
	r, unanswered, err := b.run(ctx, b.pool, b.sql.batched("release_all.sql", len(part)).with(v))
	switch {
	case unanswered: // if there is an answer, an attempt before it may have freed the rest
	case err == nil && r.freed() == len(part):
		return
	case err == nil:
		if err = b.tellLost(ctx, part, v); err == nil {
			return
		}
		unanswered = true
	}
	for _, one := range part {
		if *one.err = err; unanswered {
			one.freed.Store(true)
		}
	}
}

// tellLost tells which of part were lost before the release that v says. Each is, unless
// its row stands as the release has left it, or it was released before. One that another
// process has taken since then is told to be lost with those that are: they are of one call.
func (b *Backend) tellLost(ctx context.Context, part []*freeing, v values) error {
	r, _, err := b.run(ctx, b.pool, b.sql.batched("released.sql", len(part)).with(v))
	if err != nil {
		return err
	}
	for _, one := range part {
		if !one.freed.Load() {
			*one.err = driver.ErrLost
		}
	}
	for _, row := range r.rows {
		*part[row[0]].err = nil
	}
	return nil
}
