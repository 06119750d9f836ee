package locktest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/driver"
)

// closeLimit is how long the end of a test waits for methods that still run.
const closeLimit = 5 * time.Second

// Engine is a lock engine in memory with switches for faults. It is a [driver.Backend].
// Each Locker of an Engine stands for a process. Make it with [New].
type Engine struct {
	t      testing.TB // may be nil
	memory *memlock.Backend
	clock  clock

	// Held by Advance, so that one call runs at a time. It is locked before mu.
	advance sync.Mutex

	mu      sync.Mutex
	holders map[string]*lease   // by key, as the engine sees them
	watched map[*lease]struct{} // the leases that Lockers believe they hold
	kinds   map[*kindLease]struct{}
	others  int // how many Others HeldByOther has made

	named map[string]*Engine // by Named

	down        error // the error of every call, or nil if the engine is up
	delay       time.Duration
	lostReplies int
}

// New returns an Engine that is up and holds no lock. If a switch can't do what it is
// asked, such as expire a lock that nobody holds, it reports an error to t. An Example
// passes nil, because it has no t; then the switch panics.
func New(t testing.TB) *Engine {
	e := &Engine{
		t:       t,
		memory:  memlock.New(),
		holders: map[string]*lease{},
		watched: map[*lease]struct{}{},
		kinds:   map[*kindLease]struct{}{},
	}
	e.clock.init(&e.mu)
	return e
}

// Named implements [driver.Named]. If the Options of a Locker of e name no backends, e has a
// backend for each name that a policy asks for.
func (e *Engine) Named(name string) driver.Backend { return e.Backend(name) }

// Backend returns the Engine for the backend of this name, as in backend= of a directive. It
// has switches of its own. Only [Engine.Heal] and [Engine.Advance] of e also work on it. The
// empty name is e itself.
func (e *Engine) Backend(name string) *Engine {
	if name == "" {
		return e
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.named[name] == nil {
		if e.named == nil {
			e.named = map[string]*Engine{}
		}
		e.named[name] = New(e.t)
	}
	return e.named[name]
}

// backends returns the Engines that Backend has made.
func (e *Engine) backends() []*Engine {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Collect(maps.Values(e.named))
}

// Locker returns lock.New(e, opts), which stands for one process. When the
// test ends, e is healed and the Locker is closed. If a method still holds a lock then,
// that is an error of the test.
func (e *Engine) Locker(opts *lock.Options) *lock.Locker {
	l := lock.New(e, opts)
	if e.t == nil {
		return l
	}
	e.t.Cleanup(func() {
		e.Heal()
		ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
		defer cancel()
		if err := l.Close(ctx); err != nil {
			e.t.Errorf("locktest: the test has ended, but not all that it locked: %v", err)
		}
	})
	return l
}

// Acquire implements [driver.Backend].
func (e *Engine) Acquire(ctx context.Context, a *driver.Acquisition) (driver.Lease, error) {
	l, answer, err := e.acquire(ctx, a)
	if ended := answer.await(ctx); ended != nil {
		return nil, fmt.Errorf("%w: %w", driver.ErrIndeterminate, ended)
	}
	if err != nil {
		return nil, err
	}
	if a.Mode.Kind != 0 {
		l = e.addKind(l.(leaseOfKind), a)
	}
	return l, nil
}

// acquire is the part of Acquire at the engine. It returns the answer, which may be delayed.
func (e *Engine) acquire(ctx context.Context, a *driver.Acquisition) (l driver.Lease, _ *answer, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.down != nil {
		return nil, nil, e.down
	}
	if a.Mode.Kind != 0 {
		l, err = e.memory.Acquire(ctx, a)
	} else {
		l, err = e.take(ctx, a)
	}
	if e.lostReplies > 0 {
		e.lostReplies--
		err = fmt.Errorf("%w: %w", driver.ErrIndeterminate, errReplyLost)
	}
	return l, e.clock.send(e.delay, nil), err
}

// call runs do at the engine, and returns its error when the answer arrives.
func (e *Engine) call(ctx context.Context, do func() error) error {
	answer, err := e.startCall()
	if err != nil {
		return err
	}
	err = do()
	if ended := answer.await(ctx); ended != nil {
		return ended
	}
	return err
}

// startCall returns the answer to a call, or the error if the engine is down.
func (e *Engine) startCall() (*answer, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.down != nil {
		return nil, e.down
	}
	return e.clock.send(e.delay, nil), nil
}

// take makes a the holder of its key, if the key is free.
func (e *Engine) take(ctx context.Context, a *driver.Acquisition) (*lease, error) {
	e.freeIfOver(a.Key)
	end := e.clock.now().Add(a.TTL)
	inner, err := e.memory.Acquire(ctx, a)
	if err != nil {
		var held *driver.HeldError
		if h := e.holders[a.Key]; h != nil && errors.As(err, &held) {
			held.RetryAfter = max(e.clock.left(h.expires), 0)
		}
		return nil, err
	}
	l := &lease{engine: e, Lease: inner, key: a.Key, id: a.ID, memoryID: a.ID, ttl: a.TTL, expires: end, deadline: end}
	e.holders[a.Key] = l
	return l, nil
}

// freeIfOver frees key if its lease is over. While the clock moves it does nothing, because the
// holders are told first.
func (e *Engine) freeIfOver(key string) {
	if l := e.holders[key]; l != nil && !e.clock.moving && e.clock.left(l.expires) <= 0 {
		e.free(l)
	}
}

// free ends l at the engine, and wakes those that wait for its key.
func (e *Engine) free(l *lease) {
	delete(e.holders, l.key)
	e.memory.Undo(context.Background(), &driver.Acquisition{Key: l.key, ID: l.memoryID})
}

// Undo implements [driver.Backend].
func (e *Engine) Undo(ctx context.Context, a *driver.Acquisition) error {
	return e.call(ctx, func() error {
		if a.Mode.Kind != 0 {
			return e.memory.Undo(ctx, a)
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		if l := e.holders[a.Key]; l != nil && l.id == a.ID {
			e.free(l)
		}
		return nil
	})
}

// Subscribe implements [driver.Notifier].
func (e *Engine) Subscribe(ctx context.Context, a *driver.Acquisition) (driver.Subscription, error) {
	e.mu.Lock()
	down := e.down
	e.mu.Unlock()
	if down != nil {
		return nil, down
	}
	return e.memory.Subscribe(ctx, a)
}

// Ping implements [driver.Pinger].
func (e *Engine) Ping(context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.down
}

// Close implements [driver.Backend]. It does nothing, because another Locker may still
// use e.
func (e *Engine) Close() error { return nil }

// NotifyWanted implements [driver.Recaller].
func (e *Engine) NotifyWanted(a *driver.Acquisition, look func()) {
	e.mu.Lock()
	if l := e.holders[a.Key]; l != nil && l.id == a.ID {
		l.recall = look
	}
	e.mu.Unlock()
	e.memory.NotifyWanted(a, func() { go look() }) // the caller of this func may have e's mutex
}

// recall makes the Locker that keeps a lease on key by Policy.Sticky give it up, as if a process
// waited for it.
func (e *Engine) recall(key string) {
	recall := func() {}
	e.mu.Lock()
	if l := e.holders[key]; l != nil && l.recall != nil {
		recall = l.recall
	}
	e.mu.Unlock()
	recall()
}
