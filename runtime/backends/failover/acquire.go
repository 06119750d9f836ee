package failover

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// Acquire implements [driver.Backend].
func (b *Backend) Acquire(ctx context.Context, a *driver.Acquisition) (driver.Lease, error) {
	if err := b.group.Usable(); err != nil {
		return nil, err
	}
	if err := b.group.Takes(a, b.terms.LongestTTL); err != nil {
		return nil, err
	}
	e, err := b.current(ctx)
	if err != nil {
		return nil, err
	}
	granted, err := e.attempt(ctx, a)
	if err != nil {
		return nil, b.attemptErr(ctx, e, a, err)
	}
	b.mu.Lock()
	delete(b.waiting, engine.PlaceOf(a))
	offset, floor := e.Offset, e.Floor
	b.mu.Unlock()
	l := &lease{Wrapped: engine.Wrapped{Lease: granted, TTL: a.TTL}, backend: b, epoch: e, offset: offset}
	if err := b.checkTokens(ctx, l, floor); err != nil {
		first, _ := granted.Tokens()
		b.insist(func(ctx context.Context) error { return granted.Release(ctx, first-1) })
		if errors.Is(err, errSwitched) {
			err = b.switchedErr(e)
		}
		return nil, err
	}
	return l, nil
}

// attempt is Acquire at e's engine. It is cancelled when the epoch ends, which may be because
// the engine hangs.
func (e *epoch) attempt(ctx context.Context, a *driver.Acquisition) (driver.Lease, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.ctx, cancel)()
	return e.member.Acquire(ctx, a)
}

// attemptErr returns what Acquire returns for err, the error of an attempt by e. That is err, unless e is over
// or its engine is away. Then it is [engine.NotYet]: another engine will grant, or this one again.
func (b *Backend) attemptErr(ctx context.Context, e *epoch, a *driver.Acquisition, err error) error {
	if engine.HeldBy(err) != nil && (!a.Queue || b.noteWaiting(e.member, a)) {
		return err
	}
	if ctx.Err() != nil || b.group.Life.Closed() || errors.Is(err, driver.ErrConflict) || errors.Is(err, driver.ErrInvalid) ||
		e.ctx.Err() == nil && !e.member.fails(ctx) {
		return err
	}
	a.MayHaveRun = a.MayHaveRun || errors.Is(err, driver.ErrIndeterminate)
	// The next attempt has the same ID, and so the place in the queue that this one may have.
	placed := a.Queue && (a.MayHaveRun || a.MayBeGranted)
	if e.ctx.Err() == nil && (!placed || b.noteWaiting(e.member, a)) {
		return engine.NotYet(b.terms.Probe, fmt.Sprintf("the engine %q is away: %v", e.member.name, driver.Locate(e.member.Backend, err)))
	}
	a.MayHaveRun = true
	asked := *a
	b.insist(func(ctx context.Context) error { return e.member.Undo(ctx, &asked) })
	return b.switchedErr(e)
}

// noteWaiting notes that a has a place in m's queue, which a switch to another engine gives up. It reports
// false if there has been such a switch.
func (b *Backend) noteWaiting(m *member, a *driver.Acquisition) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.epoch.member != m {
		return false
	}
	b.waiting[engine.PlaceOf(a)] = *a
	return true
}

// switchedErr returns the error for an attempt by e that is undone in the background: the caller waits for
// the next engine. If that is e's engine again the caller must not wait, because its next attempt would have
// the same ID, and be undone with this one.
func (b *Backend) switchedErr(e *epoch) error {
	if b.granting() == e.member {
		return fmt.Errorf("engine %q: it was left while it was asked, and grants again, or the record was lost", e.member.name)
	}
	return engine.NotYet(b.terms.Probe, fmt.Sprintf("the engine %q was left while it was asked; the next one grants once no lease of it can last", e.member.name))
}

// checkTokens returns nil if the tokens of l, which was just granted, are above those of earlier epochs. It
// raises the ceiling, so that they are below those of later epochs.
func (b *Backend) checkTokens(ctx context.Context, l *lease, floor uint64) error {
	first, n := l.Tokens()
	if first <= floor {
		return fmt.Errorf("the clock or revision of the engine %q has gone back: its token would be %d, and an engine before it gave up to %d",
			l.epoch.member.name, first, floor)
	}
	last := first + n - 1
	b.mu.Lock()
	if e := l.epoch; last > e.lastToken {
		e.lastToken, e.lastTokenAt = last, driver.Now()
	}
	b.mu.Unlock()
	return b.raiseCeiling(ctx, l.epoch, last)
}

// Undo implements [driver.Backend]: at the engine that grants, and at those that have lately.
func (b *Backend) Undo(ctx context.Context, a *driver.Acquisition) error {
	if err := b.group.Usable(); err != nil {
		return err
	}
	asked := map[*member]bool{}
	b.mu.Lock()
	if b.epoch != nil && b.epoch.member != nil {
		asked[b.epoch.member] = true
	}
	for m, until := range b.former {
		if until.Left() > 0 {
			asked[m] = true
		} else {
			delete(b.former, m)
		}
	}
	at := engine.PlaceOf(a)
	if w, waits := b.waiting[at]; a.Queue && waits && !a.BegunBefore(w.ID) {
		delete(b.waiting, at)
	}
	b.mu.Unlock()
	errs := make(chan error, len(asked))
	for m := range asked {
		copied := *a
		go func() { errs <- m.Undo(ctx, &copied) }()
	}
	var err error
	for range asked {
		err = errors.Join(err, <-errs)
	}
	return err
}

// freeTimeout is the timeout of one call that frees something. Close waits for such a call.
const freeTimeout = 500 * time.Millisecond

// insist calls free in the background until it is answered, or LongestTTL has passed. An engine
// that was switched away from can't grant again before that.
func (b *Backend) insist(free func(context.Context) error) {
	b.group.Life.Go(func(ctx context.Context) {
		_ = engine.RetryFree(ctx, b.terms.LongestTTL, func(ctx context.Context) error {
			limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), freeTimeout)
			defer cancel()
			return free(limited)
		})
	})
}

// Subscribe implements [driver.Notifier], at the engine that grants.
func (b *Backend) Subscribe(ctx context.Context, a *driver.Acquisition) (driver.Subscription, error) {
	if err := b.group.Usable(); err != nil {
		return nil, err
	}
	return engine.Follow(ctx, b.group.Life, a, func() driver.Backend {
		if m := b.granting(); m != nil {
			return m.Backend
		}
		return nil
	})
}

// granting returns the engine that grants, or nil if none is known.
func (b *Backend) granting() *member {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.epoch == nil {
		return nil
	}
	return b.epoch.member
}
