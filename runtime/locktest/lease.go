package locktest

import (
	"context"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// lease is one grant, as the engine and as its holder see it. The two differ when an answer is late
// or lost, or when an operator deletes the lock. The engine's mutex guards its fields. Its instants
// are of the engine's clock.
type lease struct {
	driver.Lease // at the memory
	engine       *Engine
	key, id      string
	memoryID     string // the holder's ID at the memory; after HeldByOther it is still that of the first holder
	ttl          time.Duration
	expires      driver.Instant // at the engine
	deadline     driver.Instant // according to the answers that have reached the holder
	look         func()         // makes the Locker look at deadline
	recall       func()         // makes the Locker give the lease up if nobody uses it, or nil
	looks        int            // how many looks are under way
	unanswered   int            // renewals whose answers have not arrived yet
}

// Deadline implements [driver.Lease]. It is on the Locker's clock, which is behind the engine's.
func (l *lease) Deadline() driver.Instant {
	l.engine.mu.Lock()
	defer l.engine.mu.Unlock()
	return l.engine.clock.real(l.deadline)
}

// NotifyLoss implements [driver.LossNotifier].
func (l *lease) NotifyLoss(look func()) {
	l.engine.mu.Lock()
	defer l.engine.mu.Unlock()
	l.look = look
	l.engine.watched[l] = struct{}{}
}

// Renew implements [driver.Lease].
func (l *lease) Renew(ctx context.Context, ttl time.Duration) error {
	end, answer, err := l.renew(ctx, ttl)
	if ended := answer.await(ctx); ended != nil {
		return ended
	}
	e := l.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case err == driver.ErrLost:
		delete(e.watched, l)
	case err == nil && e.clock.left(end) > e.clock.left(l.deadline):
		l.deadline, l.ttl = end, ttl
	}
	return err
}

// renew is the part of Renew that runs at the engine.
func (l *lease) renew(ctx context.Context, ttl time.Duration) (end driver.Instant, _ *answer, _ error) {
	e := l.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.down != nil {
		return end, nil, e.down
	}
	answer := e.clock.send(e.delay, l)
	e.freeIfOver(l.key)
	if e.holders[l.key] != l || e.clock.left(l.expires) <= 0 {
		return end, answer, driver.ErrLost
	}
	end = e.clock.now().Add(ttl)
	if err := l.Lease.Renew(ctx, ttl); err != nil {
		return end, answer, err
	}
	if e.clock.left(end) > e.clock.left(l.expires) { // a renewal never shortens a lease
		l.expires = end
	}
	return end, answer, nil
}

// Release implements [driver.Lease].
func (l *lease) Release(ctx context.Context, last uint64) error {
	answer, err := l.release(ctx, last)
	if ended := answer.await(ctx); ended != nil {
		return ended
	}
	return err
}

func (l *lease) release(ctx context.Context, last uint64) (*answer, error) {
	e := l.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.watched, l)
	if e.down != nil {
		return nil, e.down
	}
	answer := e.clock.send(e.delay, nil)
	e.freeIfOver(l.key)
	if e.holders[l.key] != l {
		return answer, driver.ErrLost
	}
	delete(e.holders, l.key)
	return answer, l.Lease.Release(ctx, last)
}
