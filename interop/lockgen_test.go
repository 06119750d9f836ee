package interop

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

// client is one of the two that share a key. It has one lock at a time, and its
// methods are called one after another, but for waits. They give up by themselves
// where an answer does not come.
type client interface {
	// lock returns when it holds the lock of name, until unlock or ctx ends.
	lock(ctx context.Context, name string) error
	// try takes the lock of name if it is free, at once.
	try(ctx context.Context, name string) (bool, error)
	// unlock returns when the engine has been told.
	unlock(ctx context.Context) error
	// waits says whether a call of lock waits where a release wakes it, as far as
	// can be seen from outside.
	waits(ctx context.Context, name string) (bool, error)
}

// section is what lockgen generates for Section and for Folder.
type section interface {
	Run(ctx context.Context, name string, body func(context.Context) error) error
	Try(ctx context.Context, name string, body func(context.Context) error) error
}

// lockgen is our side: a generated wrapper, in one goroutine.
type lockgen struct {
	section section
	backend *watched
	leave   chan struct{}
	left    chan error
}

// newLockgen returns our side on an engine; it closes the backend at the end.
func newLockgen(t *testing.T, b backend) *lockgen {
	w := &watched{backend: b}
	return &lockgen{section: NewSectionWithLock(&Section{}, newLocker(t, w)), backend: w}
}

// newFolder is newLockgen for `consul lock`.
func newFolder(t *testing.T, b backend) *lockgen {
	w := &watched{backend: b}
	return &lockgen{section: NewFolderWithLock(&Folder{}, newLocker(t, w)), backend: w}
}

func newLocker(t *testing.T, b driver.Backend) *lock.Locker {
	locker := lock.New(b, nil)
	t.Cleanup(func() {
		require.NoError(t, locker.Close(context.WithoutCancel(t.Context())))
	})
	return locker
}

func (l *lockgen) lock(ctx context.Context, name string) error {
	_, err := l.enter(ctx, name, l.section.Run)
	return err
}

func (l *lockgen) try(ctx context.Context, name string) (bool, error) {
	in, err := l.enter(ctx, name, l.section.Try)
	if errors.Is(err, lock.ErrNotAcquired) {
		err = nil
	}
	return in, err
}

type call func(ctx context.Context, name string, body func(context.Context) error) error

// enter calls the method in a goroutine of its own, and leaves it inside.
func (l *lockgen) enter(ctx context.Context, name string, method call) (in bool, err error) {
	entered, leave, left := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	l.leave, l.left = leave, left
	go func() {
		left <- method(ctx, name, func(ctx context.Context) error {
			close(entered)
			select {
			case <-leave:
				return lock.Check(ctx)
			case <-ctx.Done(): // the lock was lost, or the test has ended
				return context.Cause(ctx)
			}
		})
	}()
	select {
	case <-entered:
		return true, nil
	case err := <-left:
		l.backend.refused.Store(false)
		return false, err
	}
}

func (l *lockgen) unlock(context.Context) error {
	close(l.leave)
	err := <-l.left
	l.backend.refused.Store(false) // the next wait shall not be taken for this one's
	return err
}

func (l *lockgen) waits(context.Context, string) (bool, error) {
	return l.backend.refused.Load(), nil
}

// backend is what every engine's backend is; a Locker asks for no more.
type backend interface {
	driver.Backend
	driver.BatchRenewer
	driver.Notifier
	driver.Shared
}

// watched is a backend of which the test sees when it waits.
type watched struct {
	backend
	subscriptions atomic.Int64
	notified      atomic.Bool // the last refusal's subscription misses nothing
	refused       atomic.Bool // and there is a subscription: now a release wakes it
}

func (w *watched) Acquire(ctx context.Context, a *driver.Acquisition) (driver.Lease, error) {
	lease, err := w.backend.Acquire(ctx, a)
	var held *driver.HeldError
	if errors.As(err, &held) {
		w.notified.Store(held.Notified)
		if w.subscriptions.Load() > 0 {
			w.refused.Store(true)
		}
	}
	return lease, err
}

func (w *watched) Subscribe(ctx context.Context, a *driver.Acquisition) (driver.Subscription, error) {
	s, err := w.backend.Subscribe(ctx, a)
	if err != nil {
		return nil, err
	}
	w.subscriptions.Add(1)
	if w.notified.Load() {
		w.refused.Store(true)
	}
	return &subscription{s, w}, nil
}

type subscription struct {
	driver.Subscription
	of *watched
}

func (s *subscription) Close() {
	s.of.subscriptions.Add(-1)
	s.Subscription.Close()
}

// await returns when what is true, and fails the test if it takes long.
func await(t *testing.T, why string, what func() (bool, error)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		ok, err := what()
		require.NoError(t, err, why)
		if ok {
			return
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			require.Fail(t, "it takes too long", why)
		}
	}
}

// wait is when a client began to wait, since its last release, for a test that is to
// give it time.
type wait struct{ since atomic.Int64 }

func (w *wait) begin() { w.since.CompareAndSwap(0, time.Now().UnixMicro()) }
func (w *wait) end()   { w.since.Store(0) }

func (w *wait) lasted(d time.Duration) bool {
	since := w.since.Load()
	return since != 0 && time.Since(time.UnixMicro(since)) > d
}
