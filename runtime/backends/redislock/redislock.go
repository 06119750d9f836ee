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

// grantLease is the lease that a release grants to the next in line, until that renews
// it. A process that hangs in the queue delays the others once, for so long, or for a
// second, after which another waiter asks.
const grantLease = 500 * time.Millisecond

// Backend keeps locks in Redis. Make it with [New] or [Open]; its methods may
// be called from any number of goroutines.
type Backend struct {
	options    Options
	life       *engine.Life
	client     redis.UniversalClient // made by us, from the caller's options
	unusable   error                 // why every call fails, or nil
	sentinels  []string              // the addresses of the Sentinels, if Open was given some
	tls        bool                  // client speaks TLS
	router     router
	subscriber *subscriber
	kinds      *record.Locks // the locks that are no mutexes
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
			_, err = b.resolveConflict(ctx, a, nil, err)
		}
		return l, err
	}
	if a.Recall {
		b.subscriber.register(ctx, a)
	}
	var w *waiter
	listening := false
	if a.Queue {
		if w = b.subscriber.waiter(a, false); w != nil {
			if l := w.claim(b, k, a); l != nil && b.options.Replicas == 0 {
				w.ended(true)
				return b.subscriber.hold(l), nil
			}
			listening = w.state() == confirmed
		}
	}
	l, held, err := b.attemptAcquire(ctx, k, a, w, b.acquire(k, a, w))
	switch {
	case held != nil:
		held.Notified = listening
		if !a.Queue {
			b.subscriber.forget(a.ID)
		}
		return nil, held
	case w != nil:
		w.ended(err == nil)
	}
	if err != nil {
		b.subscriber.forget(a.ID)
		return nil, err
	}
	return b.subscriber.hold(l), nil
}

// attemptAcquire sends first, and again as run does. One of its results is not nil.
func (b *Backend) attemptAcquire(ctx context.Context, k keys, a *driver.Acquisition, w *waiter, first *call) (*lease, *driver.HeldError, error) {
	c, unanswered, err := b.run(ctx, first)
	a.MayHaveRun = a.MayHaveRun || unanswered
	if err != nil {
		held, err := b.resolveConflict(ctx, a, w, err)
		return nil, held, err
	}
	switch numbers, holder := c.reply.list(); {
	case c.reply.number() > 0:
	case len(numbers) == 3:
		a.MayBeGranted = a.MayBeGranted || a.Queue
		if w != nil {
			w.held(c.sent(), numbers[1], numbers[2] == 1, k.channel)
		}
		return nil, &driver.HeldError{RetryAfter: time.Duration(numbers[0]) * time.Millisecond, Holder: holder}, nil
	case c.reply.value == "undone":
		return nil, nil, errors.New("the acquisition was undone already")
	default:
		return nil, nil, c.reply.malformed()
	}
	if err := b.requireReplicas(ctx, a, c); err != nil {
		return nil, nil, err
	}
	l := newLease(b, k, a, uint64(c.reply.number()))
	if w != nil && w.afterRedisson() {
		l.tokens = 1 // as a grant with holdOnce
	}
	l.extend(c.sent(), a.TTL)
	return l, nil, nil
}

// acquire returns the call that takes k for a. It leaves out arguments that have their
// default.
func (b *Backend) acquire(k keys, a *driver.Acquisition, w *waiter) *call {
	tokens, entry, since := "", "", ""
	if a.Queue {
		entry, since = w.place(a)
	}
	if a.Tokens > 1 || entry != "" {
		tokens = strconv.FormatUint(a.Tokens, 10)
	}
	c := acquireScript.on(k.lock, k.queue, k.token, k.undone(a.ID)).with(a.ID, ms(a.TTL), tokens, entry, since)
	c.takes, c.replicas, c.waitsForFailover = true, b.replicas(), a.Queue
	return c
}

// run sends first to the server of its first key, and sends its request again where an attempt
// had no answer or a transient error. It returns the attempt that was answered. unanswered says
// that some attempt was not, so that it may have run, or may yet run, beside that one.
func (b *Backend) run(ctx context.Context, first *call) (c *call, unanswered bool, err error) {
	var to route
	begun, request := time.Now(), first.request
	c = first
	for attempt := 0; ; attempt++ {
		var batcher *batcher
		batcher, err = b.attempt(ctx, c, to, attempt)
		unanswered = unanswered || c.outcomeUnknown(err)
		switch {
		case err == nil:
			if batcher.inOutage.Load() {
				b.router.recovered(batcher)
			}
			return c, unanswered, nil
		case c.oneKeySuffices && isSlotMoving(err):
			if request, err = b.withOneKey(ctx, request); err == nil {
				attempt, to, c = -1, route{}, &call{request: request}
				continue
			}
		case ctx.Err() == nil && (b.router.resends(attempt, begun) || c.waitsForFailover && b.router.mayStillWait(batcher, begun)):
			var transient bool
			if to, transient = b.router.transient(err, batcher); transient && engine.Pause(ctx, resendAfter[min(attempt, len(resendAfter)-1)]) {
				c = &call{request: request, asking: to.asking}
				continue
			}
		}
		if err = b.withAdvice(batcher, err); unanswered && !errors.Is(err, errNoAnswer) {
			err = fmt.Errorf("an earlier attempt had no answer: %w", err)
		}
		if unanswered && !first.readOnly {
			err = fmt.Errorf("%w: %w", driver.ErrIndeterminate, err)
		}
		return nil, unanswered, err
	}
}

// attempt sends c, the nth attempt, unless it was sent already as one of several. It returns
// the batcher that c went by.
func (b *Backend) attempt(ctx context.Context, c *call, to route, n int) (*batcher, error) {
	if c.batcher != nil || c.failed != nil {
		return c.batcher, c.failed
	}
	batcher, err := b.router.batcherFor(ctx, c.keys[0], to, c.replicas.want > 0)
	if err != nil {
		return nil, err
	}
	ctx, stop := b.router.withFailoverTimeout(ctx, c, failoverTimeout<<min(n, 1)+c.replicas.within)
	defer stop()
	if c.takes {
		batcher.warm(b.life)
	}
	return batcher, batcher.forCall(c).do(ctx, c)
}
