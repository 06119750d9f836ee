package quorum

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// takeBack frees at one member what an attempt took, or may have taken, and returns when
// that is done or the lease is over. It reports whether the next attempt needs a new ID, because
// the member may refuse this ID for ever (a tombstone), or a release without an answer, or the
// notice of a grant that was released, may still arrive.
func (b *Backend) takeBack(ctx context.Context, x *ballot, ttl time.Duration) (needsNewID bool) {
	switch {
	case x.lease != nil:
		first, _ := x.lease.Tokens()
		b.insist(ctx, ttl, func(ctx context.Context) error {
			err := x.lease.Release(ctx, first-1)
			needsNewID = needsNewID || err != nil && !errors.Is(err, driver.ErrLost)
			return err
		})
		needsNewID = needsNewID || x.asked.Queue || x.slot.placed // also at a member that is no longer the gate
	case x.asked.MayHaveRun || errors.Is(x.err, driver.ErrIndeterminate):
		x.asked.MayHaveRun = true
		if x.asked.Queue {
			ttl = max(ttl, b.options.LongestTTL) // a place in the queue may be granted the key later
		}
		b.insist(ctx, ttl, func(ctx context.Context) error { return x.member.Undo(ctx, x.asked) })
	}
	return needsNewID || x.asked.MayHaveRun
}

// leaveQueue gives up a's place in the queue of one member. a has got the lock by other members.
func (b *Backend) leaveQueue(ctx context.Context, x *ballot, a *driver.Acquisition) {
	place := b.request(a, x.slot, true)
	b.insist(ctx, b.options.LongestTTL, func(ctx context.Context) error { return x.member.Undo(ctx, place) })
	b.withLock(func() { x.slot.placed = false })
}

// leaveQueueLater is leaveQueue once the slot is free, if there is a place then.
func (b *Backend) leaveQueueLater(ctx context.Context, x *ballot, a *driver.Acquisition) {
	if x.slot.lock(b.group.Life.Context()) != nil {
		return
	}
	defer x.slot.unlock()
	if x.slot.placed {
		b.leaveQueue(ctx, x, a)
	}
}

// insist calls free until it is answered, ttl has passed or b is closed. ErrLost is an answer, and
// the result.
func (b *Backend) insist(ctx context.Context, ttl time.Duration, free func(context.Context) error) error {
	return engine.RetryFree(b.group.Life.Context(), ttl, func(context.Context) error {
		limited, cancel := b.limited(ctx, ttl)
		defer cancel()
		return free(limited)
	})
}

// Undo implements [driver.Backend]. It returns once a majority has undone a, or so many members have failed
// that no majority can. At the others it goes on in the background for one timeout, and longer where a has a
// place in the queue.
func (b *Backend) Undo(ctx context.Context, a *driver.Acquisition) error {
	if err := b.group.Usable(); err != nil {
		return err
	}
	op := b.openOp(a.ID)
	b.withLock(func() { op.ended = true })
	defer b.closeOp(a.ID, op)
	result, done := make(chan struct{}), false
	defer close(result)
	answers := make(chan error, len(b.members))
	for i, m := range b.members {
		b.withLock(func() { op.users++ })
		asked := *a
		b.begin(func() {
			defer b.closeOp(asked.ID, op)
			undo := func(ctx context.Context) error { return b.undoAt(ctx, m, &op.slots[i], &asked) }
			err := undo(ctx)
			answers <- err
			<-result
			placed := false
			b.withLock(func() { placed = op.slots[i].placed })
			if err != nil && done && placed {
				b.insist(context.WithoutCancel(ctx), b.options.LongestTTL, undo)
			}
		})
	}
	var failed []error
	for answered := 1; ; answered++ {
		select {
		case err := <-answers:
			if err != nil {
				failed = append(failed, err)
			}
		case <-ctx.Done():
			return ctx.Err()
		}
		switch {
		case len(failed) > len(b.members)-b.majority:
			return errors.Join(failed...)
		case answered-len(failed) >= b.majority:
			done = true // the caller does not call again
			return nil
		}
	}
}

// undoAt undoes a at one member, after what is under way there for a.
func (b *Backend) undoAt(ctx context.Context, m *member, s *slot, a *driver.Acquisition) error {
	ctx, cancel := b.limited(context.WithoutCancel(ctx), a.TTL)
	defer cancel()
	err := s.lock(ctx)
	if err == nil {
		defer s.unlock()
		asked := b.request(a, s, true) // it may have a place in the queue of every member that was the gate
		asked.MayHaveRun = a.MayHaveRun
		err = m.Undo(ctx, asked)
	}
	if err != nil {
		return fmt.Errorf("member %q: %w", m.name, err)
	}
	return nil
}
