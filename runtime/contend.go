package lock

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// pollLimit bounds what a lost notification can cost a waiter.
const pollLimit = time.Second

// compete takes e's key at the backend, for h. It is called by the one
// goroutine that is busy with e, and leaves e held by h or passed on.
func (l *Locker) compete(ctx context.Context, e *entry, h *hold, end time.Time) (*hold, error) {
	c := &contender{locker: l, entry: e, policy: h.policy, ctx: ctx, end: end}
	lease, err := c.run()
	if err != nil {
		l.abandon(c, err)
		return nil, c.explain(err)
	}
	lk := newLeased(lease, &c.acquisition, e, l.tenure(c.acquisition.TTL))
	if lk.deadline().Left() <= 0 {
		// The grant took longer than the lease: nothing may begin under it.
		l.discard(lk)
		l.next(e)
		return nil, because(ErrNotAcquired, errors.New("the lease of "+h.policy.ttl().String()+
			" was over when its grant arrived; a longer ttl is needed"))
	}
	h.waited = h.waited || c.queued
	e.shard.mu.Lock()
	e.give(h, lk, time.Now())
	e.placed = false // taking the lock gave it up
	e.rejectTries()
	e.shard.mu.Unlock()
	l.watchdog.add(lk)
	l.watchdog.listen(lk)
	if l.seized.Load() { // Close did not wait for this grant, and no one would renew it
		if l.lose(lk, errClosedUnder) {
			l.release(ended, lk)
		}
		return nil, ErrClosed
	}
	return h, nil
}

// contender is one goroutine's competition for one key at the backend.
type contender struct {
	locker      *Locker
	entry       *entry
	policy      *Policy
	ctx         context.Context    // the caller's
	end         time.Time          // of the policy's wait
	acquisition driver.Acquisition // its address is handed on: kept by the lease
	queued      bool               // the engine may keep a place in its queue for us
}

// run returns the lease, or the backend's raw error: a *driver.HeldError if the key
// was held by another until the end.
func (c *contender) run() (driver.Lease, error) {
	c.acquisition = driver.Acquisition{
		Key:       c.entry.id.key,
		ID:        c.locker.newID(),
		TTL:       c.policy.ttl(),
		Tokens:    1,
		Queue:     !c.policy.Try,
		NoRenewal: c.policy.NoRenew,
	}
	if tenure := c.locker.tenure(c.policy.ttl()); tenure > 0 && c.contested() {
		// Whoever gets the lease handed shall have its own ttl left.
		c.acquisition.TTL += tenure
		c.acquisition.Tokens = tokensFor(tenure)
	}
	ctx, cancel := c.bounded()
	defer cancel()
	if c.over() { // the turn came as the wait ended: nothing needs to be sent
		return nil, errHeld
	}
	lease, err := c.entry.backend.Acquire(ctx, &c.acquisition)
	if ttl := c.policy.ttl(); c.acquisition.TTL > ttl && errors.Is(err, ErrInvalid) {
		// More than the engine's longest lease: then one that is not handed on.
		c.acquisition.TTL, c.acquisition.Tokens = ttl, 1
		lease, err = c.entry.backend.Acquire(ctx, &c.acquisition)
	}
	if c.policy.Try || !isHeld(err) {
		return lease, err
	}
	return c.wait(ctx, err)
}

// wait goes on trying: when the engine notifies, when the holder's lease ends,
// and once a second.
func (c *contender) wait(ctx context.Context, err error) (driver.Lease, error) {
	e := c.entry
	c.queued, e.placed = true, true
	e.shard.mu.Lock()
	e.elsewhere = true
	e.rejectTries()
	e.shard.mu.Unlock()

	poll := pollAfter(err)
	due, timer := time.Now().Add(poll), time.NewTimer(poll)
	defer timer.Stop()
	for {
		if fresh := c.subscribe(ctx, due); !fresh {
			var notice <-chan struct{}
			if e.subscription != nil {
				notice = e.subscription.C()
			}
			select {
			case <-notice:
			case <-timer.C:
			case <-ctx.Done():
				return nil, err
			case <-c.locker.closing:
				return nil, ErrClosed
			}
		}
		if c.over() { // together with a notice
			return nil, err
		}
		var lease driver.Lease
		lease, err = e.backend.Acquire(ctx, &c.acquisition)
		if !isHeld(err) {
			return lease, err
		}
		poll = pollAfter(err)
		due = time.Now().Add(poll)
		timer.Reset(poll)
	}
}

// subscribe sees to it that the entry has a subscription, where the engine
// notifies. It reports whether it is new: then a release may have gone by
// before it stood, and the key is tried again. A failure is no error: the
// waiter polls, which is due then, and subscribes again next time.
func (c *contender) subscribe(ctx context.Context, due time.Time) (fresh bool) {
	n, ok := c.entry.backend.(driver.Notifier)
	if !ok || c.entry.subscription != nil {
		return false
	}
	ctx, cancel := context.WithDeadline(ctx, due)
	defer cancel()
	s, err := n.Subscribe(ctx, &c.acquisition)
	if err != nil {
		return false
	}
	c.entry.subscription = s
	return true
}

// bounded returns the caller's context, ending when the policy's wait does.
func (c *contender) bounded() (context.Context, context.CancelFunc) {
	if c.end.IsZero() {
		return c.ctx, func() {}
	}
	return context.WithDeadline(c.ctx, c.end)
}

// over reports whether nobody waits for the lock any more. It looks at the clock
// because a timer may not have fired yet.
func (c *contender) over() bool {
	return c.ctx.Err() != nil || !c.end.IsZero() && !time.Now().Before(c.end)
}

func (c *contender) contested() bool {
	c.entry.shard.mu.Lock()
	defer c.entry.shard.mu.Unlock()
	return c.entry.contested
}

// abandon clears up after a competition that failed with err, and lets the
// next in line compete.
func (l *Locker) abandon(c *contender, err error) {
	e, a := c.entry, &c.acquisition
	e.shard.mu.Lock()
	alone := e.first == nil
	e.shard.mu.Unlock()
	unknown := a.MayHaveRun || a.MayBeGranted || errors.Is(err, ErrIndeterminate)
	e.placed = e.placed || a.Queue && unknown
	if unknown || e.placed && alone {
		undo := *a
		undo.Queue = alone // the place in the engine's queue serves the next in line
		e.placed = e.placed && !alone
		l.janitor.add(e.id.backend, a.TTL, func(ctx context.Context) error {
			return e.backend.Undo(ctx, &undo)
		})
	}
	l.next(e)
}

// explain turns the backend's raw error into what the caller is told.
func (c *contender) explain(err error) error {
	ended := c.ctx.Err()
	switch {
	case isHeld(err) && ended != nil:
		return gaveUp(c.ctx)
	case isHeld(err) && !c.policy.Try:
		return waited(c.policy)
	case isHeld(err):
		return because(ErrNotAcquired, err)
	}
	for _, kind := range []error{ErrIndeterminate, ErrConflict, ErrInvalid, ErrClosed} {
		if errors.Is(err, kind) {
			return because(kind, c.endedBy(err))
		}
	}
	select {
	case <-c.locker.closing: // what was under way may have been cut
		return because(ErrClosed, c.endedBy(err))
	default:
	}
	return because(ErrUnavailable, c.endedBy(err))
}

// endedBy returns err such that it matches a context's error exactly when the
// caller's has ended: the wait of the policy is a deadline too, and none of the
// caller's, and so are a client library's own.
func (c *contender) endedBy(err error) error {
	ended := c.ctx.Err()
	switch {
	case ended == nil && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)):
		return &reason{kind: sentinel(err), cause: errors.New(err.Error())}
	case ended != nil && !errors.Is(err, ended):
		return &reason{kind: err, cause: ended}
	}
	return err
}

func sentinel(err error) error {
	if errors.Is(err, ErrIndeterminate) {
		return ErrIndeterminate
	}
	return ErrUnavailable
}

func isHeld(err error) bool {
	var h *driver.HeldError
	return errors.As(err, &h)
}

// pollAfter returns when to try again without a notice: when the holder's
// lease ends, and within a second, with jitter so that processes part.
func pollAfter(err error) time.Duration {
	var h *driver.HeldError
	errors.As(err, &h)
	d := pollLimit - rand.N(pollLimit/10)
	if h != nil && h.RetryAfter > 0 && h.RetryAfter < d {
		// Engines count in milliseconds; one more, and the lease is over.
		return h.RetryAfter + time.Millisecond
	}
	return d
}

// tenure is how long a lease of length ttl may be handed on in this process.
func (l *Locker) tenure(ttl time.Duration) time.Duration {
	return min(max(l.handOff, 0), ttl/4)
}

// tokensFor returns how many tokens a lease reserves that is handed on for d:
// as many as the server's clock yields in that time, so that the tokens in use
// never run ahead of it, and more than goroutines can switch.
func tokensFor(d time.Duration) uint64 {
	return uint64(d.Microseconds())*driver.TokensPerMicrosecond + 1
}
