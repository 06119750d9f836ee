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

// client is one of the two that share a key. It has one lock at a time. Its methods
// are called one after another, except waits, and return an error if no answer comes.
type client interface {
	// lock acquires the lock of name and holds it until unlock or until ctx ends.
	lock(ctx context.Context, name string) error
	// try acquires the lock of name if it is free. It does not wait.
	try(ctx context.Context, name string) (bool, error)
	// unlock releases the lock. It returns when the engine has executed the release.
	unlock(ctx context.Context) error
	// waits reports whether a call of lock waits and will be woken by a release, as far
	// as that can be observed.
	waits(ctx context.Context, name string) (bool, error)
}

// section is the interface of the code that lockgen generates for Section and for Folder.
type section interface {
	Run(ctx context.Context, name string, body func(context.Context) error) error
	Try(ctx context.Context, name string, body func(context.Context) error) error
}

// lockgen is our side: a generated wrapper, called in one goroutine.
type lockgen struct {
	section section
	backend *watched
	leave   chan struct{}
	left    chan error
}

// newLockgen returns our side on an engine. It closes the backend when the test ends.
func newLockgen(t *testing.T, b backend) *lockgen {
	w := &watched{backend: b}
	return &lockgen{section: NewSectionWithLock(&Section{}, newLocker(t, w)), backend: w}
}

// newFolder is like newLockgen, with the key of `consul lock`.
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

// enter calls the method in a new goroutine, which stays inside until unlock.
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
	l.backend.refused.Store(false) // so that waits does not report this call's wait for the next call
	return err
}

func (l *lockgen) waits(context.Context, string) (bool, error) {
	return l.backend.refused.Load(), nil
}

// backend is the interfaces that every engine's backend has and that the Locker needs here.
type backend interface {
	driver.Backend
	driver.BatchRenewer
	driver.Notifier
	driver.Shared
}

// watched is a backend that records when a call waits.
type watched struct {
	backend
	subscriptions atomic.Int64
	notified      atomic.Bool // HeldError.Notified of the last refusal
	refused       atomic.Bool // a call was refused and has a subscription: a release wakes it
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

// await waits until what returns true. It fails the test after answerTimeout.
func await(t *testing.T, why string, what func() (bool, error)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), answerTimeout)
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
			require.Fail(t, "timeout", why)
		}
	}
}

// wait records when a client began to wait after its last release, for tests that must
// give the client time to wait.
type wait struct{ since atomic.Int64 }

func (w *wait) begin() { w.since.CompareAndSwap(0, time.Now().UnixMicro()) }
func (w *wait) end()   { w.since.Store(0) }

func (w *wait) lasted(d time.Duration) bool {
	since := w.since.Load()
	return since != 0 && time.Since(time.UnixMicro(since)) > d
}
