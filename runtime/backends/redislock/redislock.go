package redislock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
	"github.com/lockgen/lockgen/runtime/internal/record"
)

// grantLease is the lease that the next in line is granted, until it renews it. A
// process that hangs in the queue costs the others so long, once, or a second, after
// which somebody asks.
const grantLease = 500 * time.Millisecond

// Backend keeps locks in Redis. Make it with [New] or [Open]; its methods may
// be called from any number of goroutines.
type Backend struct {
	options    Options
	life       *engine.Life
	own        redis.UniversalClient // dialed by us, from the caller's options
	unusable   error                 // why there is none
	sentinels  []string              // the addresses of those that name the server, if any do
	router     router
	subscriber *subscriber
	kinds      *record.Locks // that are no mutexes
	methods
}

// Acquire implements [driver.Backend].
func (b *Backend) Acquire(ctx context.Context, a *driver.Acquisition) (driver.Lease, error) {
	if b.unusable != nil {
		return nil, b.unusable
	}
	k, err := vet(a)
	if err != nil {
		return nil, err
	}
	if a.Mode.Kind != 0 {
		l, err := b.kinds.Acquire(ctx, a)
		if err != nil {
			_, err = b.besideForeign(ctx, a, nil, err)
		}
		return l, err
	}
	if a.Recall {
		b.subscriber.register(ctx, a)
	}
	var w *waiter
	stood := false
	if a.Queue {
		if w = b.subscriber.waiter(a, false); w != nil {
			if l := w.claim(b, k, a); l != nil && b.options.Replicas == 0 {
				w.ended()
				return b.subscriber.hold(l), nil
			}
			stood = w.state() == standing
		}
	}
	l, held, err := b.attemptAcquire(ctx, k, a, w, nil)
	switch {
	case held != nil:
		held.Notified = stood
		if !a.Queue {
			b.subscriber.forget(a.ID)
		}
		return nil, held
	case w != nil:
		w.ended()
	}
	if err != nil {
		b.subscriber.forget(a.ID)
		return nil, err
	}
	return b.subscriber.hold(l), nil
}

// attemptAcquire asks the server, which began may have been first. It returns one of the
// three.
func (b *Backend) attemptAcquire(ctx context.Context, k keys, a *driver.Acquisition, w *waiter, began *call) (*lease, *driver.HeldError, error) {
	c, unanswered, err := b.run(ctx, b.acquire(k, a, w), began)
	a.MayHaveRun = a.MayHaveRun || unanswered
	if err != nil {
		held, err := b.besideForeign(ctx, a, w, err)
		return nil, held, err
	}
	switch r := c.reply; {
	case r.kind == ':' && r.number > 0:
	case r.kind == '*' && len(r.numbers) == 3:
		a.MayBeGranted = a.MayBeGranted || a.Queue
		if w != nil {
			w.held(c.sent(), r.numbers[1], r.numbers[2] == 1, k.channel)
		}
		return nil, &driver.HeldError{RetryAfter: time.Duration(r.numbers[0]) * time.Millisecond, Holder: r.value}, nil
	case r.kind == '+' && r.text == "undone":
		return nil, nil, errors.New("the acquisition was undone already")
	default:
		return nil, nil, r.senseless()
	}
	if err := b.confirm(ctx, a, c.copies); err != nil {
		return nil, nil, err
	}
	l := newLease(b, k, a, uint64(c.reply.number))
	if w != nil && w.afterRedisson() {
		l.n = 1 // as holdOnce
	}
	l.extend(c.sent(), a.TTL)
	return l, nil, nil
}

// acquire returns the request that takes k for a. It passes no argument that
// goes without saying.
func (b *Backend) acquire(k keys, a *driver.Acquisition, w *waiter) request {
	tokens, entry := "", ""
	if a.Queue && (w == nil || w.state() != denied) { // who can't be told polls
		entry = queueEntry(a)
	}
	if a.Tokens > 1 || entry != "" {
		tokens = strconv.FormatUint(a.Tokens, 10)
	}
	r := acquireScript.on(k.lock, k.queue, k.token, k.undone(a.ID)).with(a.ID, ms(a.TTL), tokens, entry)
	r.copies, r.patient = b.copies(), a.Queue
	return r
}

// run sends r to the server of its first key, again where an attempt had no answer or
// was refused for the moment, and returns the attempt that was answered. began, if it is not
// nil, was the first. unanswered says that some attempt had none, so that it may have run, or
// may yet run, beside the one that was answered.
func (b *Backend) run(ctx context.Context, r request, began *call) (c *call, unanswered bool, err error) {
	var to route
	first := time.Now()
	for attempt := 0; ; attempt++ {
		c = &call{request: r, asking: to.asking}
		var l *batcher
		if attempt == 0 && began != nil {
			c, l, err = began, began.batcher, began.failed
		} else if l, err = b.router.of(ctx, r.keys[0], to, r.copies.want > 0); err == nil {
			err = b.attempt(ctx, l, c, attempt)
		}
		unanswered = unanswered || errors.Is(err, errNoAnswer)
		switch {
		case err == nil:
			if l.troubled.Load() {
				b.router.recovered(l)
			}
			return c, unanswered, nil
		case r.splits && isApart(err):
		case ctx.Err() == nil && (b.router.resends(attempt, first) || r.patient && b.router.bears(l, first)):
			var passing bool
			if to, passing = b.router.passing(err, l); passing && engine.Pause(ctx, resendAfter[min(attempt, len(resendAfter)-1)]) {
				continue
			}
		}
		if err = b.advised(l, explained(err)); unanswered {
			return nil, true, fmt.Errorf("%w: %w", driver.ErrIndeterminate, err)
		}
		return nil, false, err
	}
}

// attempt has l do c for the nth time.
func (b *Backend) attempt(ctx context.Context, l *batcher, c *call, n int) error {
	ctx, stop := b.router.suspecting(ctx, c.script, suspicious<<min(n, 1)+c.copies.within)
	defer stop()
	if c.script.takes {
		l.warm(b.life)
	}
	return l.of(c.script).do(ctx, c)
}
