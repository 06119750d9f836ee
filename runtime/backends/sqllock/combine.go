package sqllock

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"sync"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

const (
	// aloneMost is how many calls of one sort go by themselves. Batches of fewer calls cost
	// more than they save.
	aloneMost = 8
	// batchesMost is how many batches of calls are under way beside these: more would make
	// batches smaller, fewer would have callers wait for a round trip of others.
	batchesMost = 4
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
		return fmt.Errorf("%w: %w", errNotSent, errClosed)
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
	switch {
	case one.lease != nil, one.err != nil && own.MayHaveRun:
		return one.lease, one.err
	case one.err != nil: // the database refused all, perhaps because of another; or there was no connection yet
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
