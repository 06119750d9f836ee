package lock

import (
	"context"
	"errors"
	"hash/maphash"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// Backend is an engine that locks live at, such as redislock.New returns. Its
// author implements what package driver says.
type Backend = driver.Backend

// Locker guards methods by locks of one or several backends. One Locker serves
// a whole process; all its methods may be called from any number of goroutines.
//
// New makes it (new.go). Its methods stand in locker.go (the calls), support.go (what it can
// do), several.go (AcquireAll), queue.go (the local queue), acquire.go (at the engine),
// handoff.go (what comes after a hold), release.go (release and loss), cleanup.go, close.go and observer.go.
type Locker struct {
	id       string // a random UUID; with a number behind it, the ID of an acquisition
	own      driver.Backend
	backends map[string]driver.Backend // by name; "" is own
	handOff  time.Duration
	name     string
	observer Observer // or nil
	prefix   string   // of every key at the engines
	defaults Policy   // TTL and Wait of a policy that says nothing
	patterns map[string]Override
	orders   orders

	shards        [shards]shard
	seed          maphash.Seed  // by which a key finds its shard
	numbers       atomic.Uint64 // drawn for IDs
	waiters       sync.Pool     // of *waiter; none that goes back is in a queue, or has a turn to take
	watchdog      watchdog
	outages       outages
	cleanup       cleanup
	registrations map[string]*registration // by the backend's name, where the engine can store them
	waits         *nestedWaits             // of the process
	notes         *noteWork

	closed     atomic.Bool        // no new acquire begins
	forced     atomic.Bool        // Close has waited long enough: nothing is held any more
	openCtx    context.Context    // ends when Close begins: whoever waits at a backend gives up
	beginClose context.CancelFunc // of openCtx
	idle       chan struct{}      // has room for one: tells Close that a shard has nothing active any more
	done       chan struct{}      // closed when Close has returned

	unclosed runtime.Cleanup // tells the Observer of a Locker that nobody closed
}

// Acquire takes key under p and returns the context that owns it. The caller
// must run the guarded work under that context and then release the Hold, in a
// defer. It blocks until the lock is held, p.Wait is over or ctx ends (100 ms
// later at most). On an error the returned context is ctx and the Hold is nil,
// on which Release does nothing.
func (l *Locker) Acquire(ctx context.Context, p *Policy, key string) (context.Context, *Hold, error) {
	p = l.complete(p)
	called := l.nowIfObserved()
	outer := owned(ctx)
	if err := l.validate(p, key); err != nil {
		return ctx, nil, l.reject(ctx, p, key, called, err)
	}
	if f := outer.find(l, p.Backend, key); f != nil {
		held, err := f.reenter(ctx, outer, p, l.waitEnd(p))
		if err != nil {
			return ctx, nil, l.reject(ctx, p, key, called, err)
		}
		l.observeEntry(ctx, Reentered, p, held.frame.hold(), called)
		return held.frame.ctx, held, nil
	}
	s, err := l.admit(ctx, key)
	if err == nil && outer.heldElsewhere(l, l.backend(p.Backend), key) {
		l.leave(s)
		err = errNestedElsewhere
	}
	if err != nil {
		return ctx, nil, l.reject(ctx, p, key, called, err)
	}
	l.noteOrders(ctx, outer, p, key)
	h, err := l.take(ctx, outer, s, p, key, l.waitEnd(p))
	if err != nil {
		l.leave(s)
		return ctx, nil, l.reject(ctx, p, key, called, err)
	}
	l.observeHold(ctx, h, called)
	held := h.enter(ctx, outer)
	return held.frame.ctx, held, nil
}

// Do runs fn under the lock on key and returns its error. It is what a
// generated wrapper does, for code that locks by hand: fn must use the context
// that it is given.
func (l *Locker) Do(ctx context.Context, p *Policy, key string, fn func(ctx context.Context) error) (err error) {
	ctx, held, err := l.Acquire(ctx, p, key)
	if err != nil {
		if p != nil && p.Skip && errors.Is(err, ErrNotAcquired) {
			return nil
		}
		return err
	}
	defer held.Release(&err)
	return fn(ctx)
}

// admit counts an acquire, so that Close waits for it. It fails if the Locker is closed or ctx
// has ended. leave must follow once: when the acquire has failed, or its hold is released. A
// re-entry is not counted: the hold that it enters is.
func (l *Locker) admit(ctx context.Context, key string) (*shard, error) {
	if ctx.Err() != nil {
		return nil, ctxEnded(ctx)
	}
	s := l.shard(key)
	s.active.Add(1)
	if l.closed.Load() {
		l.leave(s)
		return nil, ErrClosed
	}
	return s, nil
}

// leave ends the count of an acquire or a hold. The last one of a shard wakes a Close that
// waits.
func (l *Locker) leave(s *shard) {
	if s.active.Add(-1) == 0 && l.closed.Load() {
		select {
		case l.idle <- struct{}{}:
		default:
		}
	}
}
