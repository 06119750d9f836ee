package sqllock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
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
	b.connectRenewals()
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
			one.err = indeterminate(one.Acquisition, one.err)
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
		var asked error
		took, asked = b.tookMySQL(ctx, r, v, len(part))
		unanswered = asked != nil // then a look at each tells
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
	inBatches(all, func(_, _ freeing) bool { return true }, func(part []freeing) { b.freeRows(ctx, part) })
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
		if unanswered && b.route(ctx).redials() {
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

const (
	// aloneMost is how many calls of one sort go by themselves. Batches of fewer calls cost
	// more than they save.
	aloneMost = 8
	// batchesMost is how many batches of calls are under way beside these: more would make
	// batches smaller, fewer would have callers wait for a round trip of others.
	batchesMost = 4
	// singlesMost is how many calls go by themselves at once after a batch that failed. A *sql.DB
	// without limits would dial for each.
	singlesMost = aloneMost * batchesMost
)

// combiner has calls of concurrent goroutines share statements and commits, once there are
// many: DESIGN.md has the states of a call. bench/README.md says what that gains.
type combiner[T any] struct {
	life *engine.Life
	run  func(ctx context.Context, calls []T) // sends calls together, and returns when they are done

	mu      sync.Mutex // guards the rest
	alone   int        // calls under way
	batches int        // likewise
	waiting []*call[T] // for a batch
}

type call[T any] struct {
	value T
	done  chan struct{}
}

// goAlone reports whether a call goes by itself. Then wentAlone is to be called.
func (c *combiner[T]) goAlone() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.alone >= aloneMost || c.batches > 0 {
		return false
	}
	c.alone++
	return true
}

func (c *combiner[T]) wentAlone() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.alone--
}

// do has value sent with others. It returns nil when that is done. Else it is not to be read:
// errNotSent says that it will not be sent, errNoAnswer that nobody waits for the answer.
func (c *combiner[T]) do(ctx context.Context, value T) error {
	one := &call[T]{value: value, done: make(chan struct{})}
	c.mu.Lock()
	c.waiting = append(c.waiting, one)
	if c.batches < batchesMost && c.life.Go(c.work) {
		c.batches++
	}
	begun := c.batches > 0
	c.mu.Unlock()
	if !begun {
		return fmt.Errorf("%w: %w", errNotSent, driver.ErrClosed)
	}
	select {
	case <-one.done:
		return nil
	case <-ctx.Done():
	}
	c.mu.Lock()
	waits := slices.Index(c.waiting, one)
	if waits >= 0 {
		c.waiting = slices.Delete(c.waiting, waits, waits+1)
	}
	c.mu.Unlock()
	if waits >= 0 {
		return fmt.Errorf("%w: %w", errNotSent, ctx.Err())
	}
	grace := time.NewTimer(answerGrace)
	defer grace.Stop()
	select {
	case <-one.done:
		return nil
	case <-grace.C:
		return fmt.Errorf("%w: %w: %w", driver.ErrIndeterminate, errNoAnswer, ctx.Err())
	}
}

// work sends batches until no call waits.
func (c *combiner[T]) work(ctx context.Context) {
	for calls := c.next(); len(calls) > 0; calls = c.next() {
		values := make([]T, len(calls))
		for i, one := range calls {
			values[i] = one.value
		}
		limited, cancel := context.WithTimeout(ctx, attemptLimit) // a dial may hang for minutes
		c.run(limited, values)
		cancel()
		for _, one := range calls {
			close(one.done)
		}
	}
}

// next returns the calls of the next batch. Their number is a power of two, so that there
// are few statements for a driver to prepare. If there are none the batch is over.
func (c *combiner[T]) next() []*call[T] {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) == 0 {
		c.waiting = nil
		c.batches--
		return nil
	}
	n := 1 << (bits.Len(uint(min(len(c.waiting), batch))) - 1)
	calls := c.waiting[:n:n]
	c.waiting = c.waiting[n:]
	return calls
}

// takeTogether asks for the lock of a with others, and then by itself if its row was not plainly
// free.
func (b *Backend) takeTogether(ctx context.Context, a *driver.Acquisition) (driver.Lease, error) {
	own := *a // who leaves shares nothing with the batch
	one := &wanted{Acquisition: &own}
	if err := b.takes.do(ctx, one); err != nil {
		a.MayHaveRun = a.MayHaveRun || errors.Is(err, errNoAnswer)
		return nil, err
	}
	a.MayHaveRun = own.MayHaveRun
	if one.lease != nil {
		return one.lease, nil
	}
	if one.err != nil || a.MayHaveRun {
		select {
		case b.singles <- struct{}{}:
			defer func() { <-b.singles }()
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", errNotSent, ctx.Err())
		}
	}
	if one.err != nil && !a.MayHaveRun { // the database refused all, perhaps because of another; or there was no connection yet
		return b.takeRow(ctx, a)
	}
	return b.takeSeen(ctx, a)
}

// releaseTogether frees l with others. errNotSent says that it may yet go by itself, unless ctx
// has ended.
func (l *lease) releaseTogether(ctx context.Context, last uint64) error {
	var answer error
	err := l.backend.frees.do(ctx, freeing{l, last, &answer})
	switch {
	case err == nil:
		return answer
	case errors.Is(err, errNoAnswer):
		l.freed.Store(true)
	}
	return err
}
