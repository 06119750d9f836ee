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

// AcquireAll and ReleaseAll send one statement for each batch of keys. It takes those that are free
// and that nobody waits for; any other key is acquired by itself. DESIGN.md tells what undoes each.
//
// A statement locks rows in the order of their names. A deadlock with a purge is still possible: then
// the database ends one of the two, which has changed nothing and is sent again.

// acquireItem is one acquisition of a batch and its result, which is neither a lease nor an error
// if its row was held or waited for.
type acquireItem struct {
	*driver.Acquisition
	tried bool // by a statement
	lease driver.Lease
	err   error
}

// AcquireAll implements [driver.BatchAcquirer].
func (b *Backend) AcquireAll(ctx context.Context, as []*driver.Acquisition) ([]driver.Lease, []error) {
	all := make([]*acquireItem, len(as))
	var rows []*acquireItem
	for i, a := range as {
		all[i] = &acquireItem{Acquisition: a}
		if b.strategy == Table && checkAcquisition(a) == nil && a.Mode.Kind == 0 && !a.Queue {
			rows = append(rows, all[i])
		}
	}
	b.connectRenewals()
	b.purgeIfDue()
	b.acquireBatches(ctx, rows)
	leases, errs := make([]driver.Lease, len(as)), make([]error, len(as))
	refused := false
	for i, item := range all {
		switch {
		case item.lease != nil || item.err != nil:
		case refused: // the caller would release this one
			item.err = &driver.HeldError{RetryAfter: time.Millisecond}
		case item.tried:
			item.lease, item.err = b.takeAfterLook(ctx, item.Acquisition)
			item.err = indeterminate(item.Acquisition, item.err)
		default:
			item.lease, item.err = b.Acquire(ctx, item.Acquisition)
		}
		leases[i], errs[i] = item.lease, item.err
		refused = refused || item.err != nil
	}
	return leases, errs
}

// acquireBatches takes those of all whose rows are free and not waited for.
func (b *Backend) acquireBatches(ctx context.Context, all []*acquireItem) {
	order := func(x, y *acquireItem) int { return cmp.Or(cmp.Compare(x.TTL, y.TTL), cmp.Compare(x.Tokens, y.Tokens)) }
	slices.SortFunc(all, func(x, y *acquireItem) int { return cmp.Or(order(x, y), strings.Compare(x.Key, y.Key)) })
	// Two Lockers may ask for one key, which no statement can take twice.
	all = slices.CompactFunc(all, func(x, y *acquireItem) bool { return order(x, y) == 0 && x.Key == y.Key })
	inBatches(all, func(x, y *acquireItem) bool { return order(x, y) == 0 }, func(part []*acquireItem) { b.takeFree(ctx, part) })
}

// takeFree takes those of part whose rows are free and not waited for, by one statement.
func (b *Backend) takeFree(ctx context.Context, part []*acquireItem) {
	v := values{"ttl": b.dialect.leaseMicros(part[0].TTL), "n": int64(part[0].Tokens), "instant": time.Now().UnixMicro()}
	for i, item := range part {
		v.lock(i, item.Key, item.ID)
	}
	r, unanswered, err := b.run(ctx, b.sql.batch("take.sql", len(part), v))
	took := tokensByNumber(r)
	if err == nil && !unanswered && b.dialect == MySQL {
		var asked error
		took, asked = b.takenOnMySQL(ctx, r, v, len(part))
		unanswered = asked != nil // then a look at each row tells who has it
	}
	for i, item := range part {
		item.tried, item.err = true, err
		item.MayHaveRun = item.MayHaveRun || unanswered
		// took does not have what an attempt without an answer took.
		if version, ok := took[int64(i)]; ok && err == nil && !unanswered {
			item.lease = b.newLease(item.Acquisition, version, r.sent)
		}
	}
}

// tokensByNumber returns the highest tokens of locks by their numbers in the batch that reply is for.
func tokensByNumber(reply answer) map[int64]int64 {
	all := map[int64]int64{}
	for i := range reply.rows {
		if n := reply.number(i, 0); n >= 0 {
			all[n] = reply.number(i, 1)
		}
	}
	return all
}

// takenOnMySQL returns the numbers and the highest tokens of the locks that a statement on n locks
// took. r is its answer.
func (b *Backend) takenOnMySQL(ctx context.Context, r answer, v values, n int) (map[int64]int64, error) {
	took := map[int64]int64{}
	switch {
	case r.affected == 0, n == 1 && r.insertID < minToken:
	case n == 1, r.insertID >= minToken && r.affected == int64(2*n):
		for i := range int64(n) {
			took[i] = r.insertID
		}
	default:
		owned, _, err := b.run(ctx, b.sql.batch("owned.sql", n, v))
		return tokensByNumber(owned), err
	}
	return took, nil
}

// releaseItem is one lease of a batch to be released, and where its error goes.
type releaseItem struct {
	*lease
	last uint64
	err  *error
}

// ReleaseAll implements [driver.BatchReleaser].
func (b *Backend) ReleaseAll(ctx context.Context, leases []driver.Lease, lasts []uint64) []error {
	errs := make([]error, len(leases))
	var rows []releaseItem
	for i, held := range leases {
		if l, ok := held.(*lease); ok && l.batchable() {
			rows = append(rows, releaseItem{l, lasts[i], &errs[i]})
		} else {
			errs[i] = held.Release(ctx, lasts[i])
		}
	}
	b.releaseBatches(ctx, rows)
	return errs
}

// releaseBatches frees the rows of all.
func (b *Backend) releaseBatches(ctx context.Context, all []releaseItem) {
	slices.SortFunc(all, func(x, y releaseItem) int { return strings.Compare(x.key, y.key) })
	inBatches(all, func(_, _ releaseItem) bool { return true }, func(part []releaseItem) { b.releaseRows(ctx, part) })
}

// releaseRows frees the rows of part, by one statement.
func (b *Backend) releaseRows(ctx context.Context, part []releaseItem) {
	v := values{}
	for i, item := range part {
		v.lock(i, item.key, item.id)
		v[fmt.Sprint("last", i)] = int64(item.last)
	}
	r, unanswered, err := b.run(ctx, b.sql.batch("release.sql", len(part), v))
	if err == nil && !unanswered && r.changed() < len(part) {
		err = b.markLost(ctx, part)
		unanswered = err != nil
	}
	for _, item := range part {
		// An earlier attempt may have freed what the answered one did not find. Not on a session's
		// connection: a session that is gone has lost its lock, and then a row that is not ours is lost.
		if unanswered && b.route(ctx).redials() {
			item.mayBeFreed.Store(true)
		}
		*item.err = cmp.Or(err, *item.err)
	}
}

// markLost sets driver.ErrLost for those of part that were lost before the release: each whose row is
// not as the release leaves it, unless an earlier release may have freed it. One that another process
// has taken since the release counts as lost too, since its row looks the same.
func (b *Backend) markLost(ctx context.Context, part []releaseItem) error {
	for _, item := range part {
		if item.mayBeFreed.Load() {
			continue
		}
		if len(part) > 1 {
			r, err := b.look(ctx, item.key)
			if err != nil {
				return err
			}
			if r.owner == "" && r.version == int64(item.last) {
				continue
			}
		}
		*item.err = driver.ErrLost
	}
	return nil
}

const (
	// maxAlone is how many acquires, and how many releases, are sent alone at one time. Batches of fewer
	// calls cost more than they save.
	maxAlone = 8
	// maxBatches is how many batches are under way beside these. With more, batches would
	// be smaller; with fewer, callers would wait for round trips of others.
	maxBatches = 4
	// maxAfterFailure is how many acquires of failed batches are tried by themselves at once. A *sql.DB
	// without limits would dial for each.
	maxAfterFailure = maxAlone * maxBatches
)

// batcher has calls of concurrent goroutines share statements and commits, once there are
// many: DESIGN.md has the states of a call. bench/README.md says what that gains.
type batcher[T any] struct {
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

// goAlone reports whether a call is sent alone: then it calls doneAlone at its end.
func (b *batcher[T]) goAlone() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.alone >= maxAlone || b.batches > 0 {
		return false
	}
	b.alone++
	return true
}

func (b *batcher[T]) doneAlone() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.alone--
}

// do sends value in a batch. It returns nil once that is done. After an error the caller must not
// read value: errNotSent says that it will not be sent, errNoAnswer that it is still under way.
func (b *batcher[T]) do(ctx context.Context, value T) error {
	pending := &call[T]{value: value, done: make(chan struct{})}
	b.mu.Lock()
	b.waiting = append(b.waiting, pending)
	if b.batches < maxBatches && b.life.Go(b.work) {
		b.batches++
	}
	begun := b.batches > 0
	b.mu.Unlock()
	if !begun {
		return fmt.Errorf("%w: %w", errNotSent, driver.ErrClosed)
	}
	select {
	case <-pending.done:
		return nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	waits := slices.Index(b.waiting, pending)
	if waits >= 0 {
		b.waiting = slices.Delete(b.waiting, waits, waits+1)
	}
	b.mu.Unlock()
	if waits >= 0 {
		return fmt.Errorf("%w: %w", errNotSent, ctx.Err())
	}
	grace := time.NewTimer(answerGrace)
	defer grace.Stop()
	select {
	case <-pending.done:
		return nil
	case <-grace.C:
		return fmt.Errorf("%w: %w: %w", driver.ErrIndeterminate, errNoAnswer, ctx.Err())
	}
}

// work sends batches until no call waits.
func (b *batcher[T]) work(ctx context.Context) {
	for calls := b.next(); len(calls) > 0; calls = b.next() {
		values := make([]T, len(calls))
		for i, pending := range calls {
			values[i] = pending.value
		}
		limited, cancel := context.WithTimeout(ctx, attemptLimit) // a dial may hang for minutes
		b.run(limited, values)
		cancel()
		for _, pending := range calls {
			close(pending.done)
		}
	}
}

// next returns the calls of the next batch, or ends the goroutine's batch if there are none. Their
// number is a power of two, so that a driver has few statements to prepare.
func (b *batcher[T]) next() []*call[T] {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) == 0 {
		b.waiting = nil
		b.batches--
		return nil
	}
	n := 1 << (bits.Len(uint(min(len(b.waiting), batchSize))) - 1)
	calls := b.waiting[:n:n]
	b.waiting = b.waiting[n:]
	return calls
}

// acquireBatched asks for the lock of a in a batch, and then by itself if its row was held or
// waited for.
func (b *Backend) acquireBatched(ctx context.Context, a *driver.Acquisition) (driver.Lease, error) {
	own := *a // a caller that leaves shares nothing with the batch
	item := &acquireItem{Acquisition: &own}
	if err := b.acquires.do(ctx, item); err != nil {
		a.MayHaveRun = a.MayHaveRun || errors.Is(err, errNoAnswer)
		return nil, err
	}
	a.MayHaveRun = own.MayHaveRun
	if item.lease != nil {
		return item.lease, nil
	}
	if item.err != nil || a.MayHaveRun {
		select {
		case b.afterFailure <- struct{}{}:
			defer func() { <-b.afterFailure }()
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", errNotSent, ctx.Err())
		}
	}
	if item.err != nil && !a.MayHaveRun { // the database refused all, perhaps because of another; or there was no connection yet
		return b.takeRow(ctx, a)
	}
	return b.takeAfterLook(ctx, a)
}

// releaseBatched frees l in a batch. After errNotSent it can be released by itself, unless ctx has
// ended.
func (l *lease) releaseBatched(ctx context.Context, last uint64) error {
	var answer error
	err := l.backend.releases.do(ctx, releaseItem{l, last, &answer})
	switch {
	case err == nil:
		return answer
	case errors.Is(err, errNoAnswer):
		l.mayBeFreed.Store(true)
	}
	return err
}
