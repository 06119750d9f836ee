package asynqlock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lockgen/lockgen/adapters/asynqlock"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/locktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newLocks returns the Locker of one process on b.
func newLocks(t *testing.T, b lock.Backend) *lock.Locker {
	t.Helper()
	l := lock.New(b, nil)
	t.Cleanup(func() { require.NoError(t, l.Close(context.Background())) })
	return l
}

func payload(task *asynq.Task) (string, error) { return string(task.Payload()), nil }

// guarded returns fn wrapped by the middleware.
func guarded(l *lock.Locker, p *lock.Policy, fn asynq.HandlerFunc) asynq.Handler {
	return asynqlock.Middleware(l, p, payload)(fn)
}

func never(context.Context, *asynq.Task) error { panic("ran") }

var invoice = asynq.NewTask("invoice", []byte("account"))

func TestTheHandlerHasTheLock(t *testing.T) {
	memory := memlock.New()
	one, other := newLocks(t, memory), guarded(newLocks(t, memory), &lock.Policy{Try: true}, never)
	err := guarded(one, nil, func(ctx context.Context, task *asynq.Task) error {
		require.Same(t, invoice, task)
		require.True(t, lock.Owns(ctx, "account"))
		err := other.ProcessTask(t.Context(), task)
		require.ErrorIs(t, err, lock.ErrNotAcquired)
		require.NotErrorIs(t, err, asynq.SkipRetry)
		require.NotErrorIs(t, err, asynq.RevokeTask)
		require.False(t, asynqlock.IsFailure(err))
		return nil
	}).ProcessTask(t.Context(), invoice)
	require.NoError(t, err)
}

func TestIsFailure(t *testing.T) {
	engine := locktest.New(t)
	engine.Fail(errors.New("away"))
	err := guarded(engine.Locker(nil), nil, never).ProcessTask(t.Context(), invoice)
	require.ErrorIs(t, err, lock.ErrUnavailable)
	require.True(t, asynqlock.IsFailure(err))
	require.True(t, asynqlock.IsFailure(fmt.Errorf("the handler's own error: %w", lock.ErrNotAcquired)))
	require.False(t, asynqlock.IsFailure(nil))
}

func TestErrorsOfOthersStayAsTheyAre(t *testing.T) {
	l := newLocks(t, memlock.New())
	noAccount := fmt.Errorf("no account: %w", asynq.SkipRetry)
	noKey := func(*asynq.Task) (string, error) { return "", noAccount }
	err := asynqlock.Middleware(l, nil, noKey)(asynq.HandlerFunc(never)).ProcessTask(t.Context(), invoice)
	require.Equal(t, noAccount, err)
	err = guarded(l, nil, func(context.Context, *asynq.Task) error { return noAccount }).ProcessTask(t.Context(), invoice)
	require.Equal(t, noAccount, err)
}

func TestALossIsToldBesideTheHandlersError(t *testing.T) {
	engine := locktest.New(t)
	broken := errors.New("broken")
	err := guarded(engine.Locker(nil), nil, func(ctx context.Context, _ *asynq.Task) error {
		engine.Expire("account")
		<-ctx.Done()
		return broken
	}).ProcessTask(t.Context(), invoice)
	require.ErrorIs(t, err, broken)
	require.ErrorIs(t, err, lock.ErrLost)
}

func TestAPanicReleases(t *testing.T) {
	h := guarded(newLocks(t, memlock.New()), &lock.Policy{Try: true}, never)
	for range 2 {
		require.PanicsWithValue(t, "ran", func() { _ = h.ProcessTask(t.Context(), invoice) })
	}
}

func TestMistakes(t *testing.T) {
	l := newLocks(t, memlock.New())
	require.Panics(t, func() { asynqlock.Middleware(l, &lock.Policy{TTL: -1}, payload) })
	err := guarded(l, &lock.Policy{Once: true}, never).ProcessTask(t.Context(), invoice)
	require.ErrorIs(t, err, lock.ErrInvalid, "a context without a task's ID")
}
