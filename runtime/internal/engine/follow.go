package engine

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// followLimit is how long a subscription at the next Backend may take. Whoever waits polls meanwhile.
const followLimit = time.Second

// following is a subscription at the Backend that of returns, which may be another each time.
type following struct {
	life  *Life
	asked driver.Acquisition
	of    func() driver.Backend

	mu     sync.Mutex // guards the rest
	at     driver.Backend
	inner  driver.Subscription
	moved  chan struct{} // closed, and made anew, once inner is another
	moving bool
	closed bool
}

// Follow subscribes at the Backend that of returns for as long as it returns that, and then at the
// next. None is nil.
func Follow(ctx context.Context, life *Life, a *driver.Acquisition, of func() driver.Backend) (driver.Subscription, error) {
	f := &following{life: life, asked: *a, of: of, moved: make(chan struct{})}
	if err := f.move(ctx, of()); err != nil {
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
	asked := f.asked
	inner, err := n.Subscribe(ctx, &asked)
	if err != nil {
		return err
	}
	f.mu.Lock()
	old := f.inner
	f.at, f.inner = b, inner
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

// C implements [driver.Subscription]. Whoever waits asks for it again after each attempt. While it
// moves, it is what tells that it has: a release may have gone by before.
func (f *following) C() <-chan struct{} {
	b := f.of()
	f.mu.Lock()
	defer f.mu.Unlock()
	if Same(f.at, b) {
		return f.inner.C()
	}
	if !f.moving {
		f.moving = f.life.Go(func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(ctx, followLimit)
			defer cancel()
			_ = f.move(ctx, b) // whoever waits polls as long as that fails
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
