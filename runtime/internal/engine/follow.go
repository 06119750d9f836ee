package engine

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// followLimit is how long a subscription at the next Backend may take. Waiters poll meanwhile.
const followLimit = time.Second

// following is a subscription at the Backend that backend returns, which may change between calls.
type following struct {
	life        *Life
	acquisition driver.Acquisition
	backend     func() driver.Backend

	mu     sync.Mutex // guards the rest
	on     driver.Backend
	inner  driver.Subscription
	moved  chan struct{} // closed and replaced when inner has changed
	moving bool
	closed bool
}

// Follow subscribes at the Backend that backend returns, and subscribes again when backend returns
// another. backend returns nil if there is none.
func Follow(ctx context.Context, life *Life, a *driver.Acquisition, backend func() driver.Backend) (driver.Subscription, error) {
	f := &following{life: life, acquisition: *a, backend: backend, moved: make(chan struct{})}
	if err := f.move(ctx, backend()); err != nil {
		return nil, err
	}
	return f, nil
}

// move subscribes at b.
func (f *following) move(ctx context.Context, b driver.Backend) error {
	n, ok := b.(driver.Notifier)
	if !ok {
		return fmt.Errorf("a %T tells of no release", b)
	}
	acquisition := f.acquisition
	inner, err := n.Subscribe(ctx, &acquisition)
	if err != nil {
		return err
	}
	f.mu.Lock()
	old := f.inner
	f.on, f.inner = b, inner
	if f.closed {
		old = inner
	}
	close(f.moved)
	f.moved = make(chan struct{})
	f.mu.Unlock()
	if old != nil {
		old.Close()
	}
	return nil
}

// C implements [driver.Subscription]. A waiter calls it again after each attempt. While the
// subscription moves, C returns a channel that is closed once it has moved, because a release may
// have been missed by then.
func (f *following) C() <-chan struct{} {
	b := f.backend()
	f.mu.Lock()
	defer f.mu.Unlock()
	if Same(f.on, b) {
		return f.inner.C()
	}
	if !f.moving {
		f.moving = f.life.Go(func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(ctx, followLimit)
			defer cancel()
			_ = f.move(ctx, b) // if that fails, waiters poll
			f.mu.Lock()
			f.moving = false
			f.mu.Unlock()
		})
	}
	return f.moved
}

// Close implements [driver.Subscription].
func (f *following) Close() {
	f.mu.Lock()
	f.closed = true
	inner := f.inner
	f.mu.Unlock()
	inner.Close()
}
