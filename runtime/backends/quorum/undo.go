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
// that is done or the lease is over. It reports whether the next attempt needs another ID: the
// member may refuse this one for ever, or a release that had no answer may yet free what is
// granted to it; or a message may yet tell of a grant to its place in the queue, which has been freed.
func (b *Backend) takeBack(ctx context.Context, x *ballot, ttl time.Duration) (spent bool) {
	switch {
	case x.lease != nil:
		first, _ := x.lease.Tokens()
		b.insist(ctx, ttl, func(ctx context.Context) error {
			err := x.lease.Release(ctx, first-1)
			spent = spent || err != nil && !errors.Is(err, driver.ErrLost)
			return err
		})
		spent = spent || x.asked.Queue || x.slot.placed // also at a member that is the gate no more
	case x.asked.MayHaveRun || errors.Is(x.err, driver.ErrIndeterminate):
		x.asked.MayHaveRun = true
		if x.asked.Queue {
			ttl = max(ttl, b.options.LongestTTL) // the place would be granted the key, however late
		}
		b.insist(ctx, ttl, func(ctx context.Context) error { return x.member.Undo(ctx, x.asked) })
	}
	return spent || x.asked.MayHaveRun
}

// leaveQueue gives up the place of an acquisition, which has the lock without it, in the queue of one member.
func (b *Backend) leaveQueue(ctx context.Context, x *ballot, a *driver.Acquisition) {
	place := b.attempt(a, x.slot, true)
	b.insist(ctx, b.options.LongestTTL, func(ctx context.Context) error { return x.member.Undo(ctx, place) })
	b.change(func() { x.slot.placed = false })
}

// leaveQueueLater is leaveQueue after what is done for the acquisition at that member, if it has a place then.
func (b *Backend) leaveQueueLater(ctx context.Context, x *ballot, a *driver.Acquisition) {
	if x.slot.take(b.group.Life.Context()) != nil {
		return
	}
	defer x.slot.give()
	if x.slot.placed {
		b.leaveQueue(ctx, x, a)
	}
}

// insist calls free until it is answered, ttl has passed or b is closed. Not the owner is an
// answer, and the result.
func (b *Backend) insist(ctx context.Context, ttl time.Duration, free func(context.Context) error) error {
	return engine.RetryFree(b.group.Life.Context(), ttl, func(context.Context) error {
		limited, cancel := b.limited(ctx, ttl)
		defer cancel()
		return free(limited)
	})
}

// Undo implements [driver.Backend]. It returns once so few members are left that they can't
// be a majority; at those it goes on in the background for one timeout, and longer where a has a place in
// the queue.
func (b *Backend) Undo(ctx context.Context, a *driver.Acquisition) error {
	if err := b.group.Usable(); err != nil {
		return err
	}
	q := b.enter(a.ID)
	b.change(func() { q.ended = true })
	defer b.leave(a.ID, q)
	result, done := make(chan struct{}), false
	defer close(result)
	answers := make(chan error, len(b.members))
	for i, m := range b.members {
		b.change(func() { q.users++ })
		asked := *a
		b.begin(func() {
			defer b.leave(asked.ID, q)
			undo := func(ctx context.Context) error { return b.undoAt(ctx, m, &q.slots[i], &asked) }
			err := undo(ctx)
			answers <- err
			<-result
			placed := false
			b.change(func() { placed = q.slots[i].placed })
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
	err := s.take(ctx)
	if err == nil {
		defer s.give()
		asked := b.attempt(a, s, true) // it may have a place in the queue of any that was the gate
		asked.MayHaveRun = a.MayHaveRun
		err = m.Undo(ctx, asked)
	}
	if err != nil {
		return fmt.Errorf("member %q: %w", m.name, err)
	}
	return nil
}
