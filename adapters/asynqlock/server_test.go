package asynqlock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/adapters/asynqlock"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
)

const patience = 30 * time.Second

// serve starts a worker for the queue at addr. The worker runs until the test ends and retries
// without a delay. The results of its handlers go to heard.
func serve(t *testing.T, addr string, h asynq.Handler, heard chan<- error) {
	t.Helper()
	s := asynq.NewServer(asynq.RedisClientOpt{Addr: addr}, asynq.Config{
		Concurrency:              2,
		IsFailure:                asynqlock.IsFailure,
		LogLevel:                 asynq.FatalLevel,
		RetryDelayFunc:           func(int, error, *asynq.Task) time.Duration { return 0 },
		TaskCheckInterval:        10 * time.Millisecond,
		DelayedTaskCheckInterval: 10 * time.Millisecond,
	})
	require.NoError(t, s.Start(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		err := h.ProcessTask(ctx, task)
		heard <- err
		return err
	})))
	t.Cleanup(s.Shutdown)
}

// next returns the result of the next handler.
func next(t *testing.T, heard <-chan error) error {
	t.Helper()
	select {
	case err := <-heard:
		return err
	case <-time.After(patience):
		t.Fatal("no handler returned")
		return nil
	}
}

// TestAsynqRetriesATaskThatIsHeld checks that a worker that does not get the lock gives the task back without
// using up a retry, and that a worker processes the task once the lock is free.
func TestAsynqRetriesATaskThatIsHeld(t *testing.T) {
	addr, memory := miniredis.RunT(t).Addr(), memlock.New()
	client := asynq.NewClient(asynq.RedisClientOpt{Addr: addr})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	_, held, err := newLocks(t, memory).Acquire(t.Context(), nil, "account")
	require.NoError(t, err)

	heard, retries := make(chan error, 1000), make(chan int, 1)
	serve(t, addr, guarded(newLocks(t, memory), &lock.Policy{Try: true}, func(ctx context.Context, _ *asynq.Task) error {
		n, _ := asynq.GetRetryCount(ctx)
		retries <- n
		return nil
	}), heard)
	_, err = client.Enqueue(invoice, asynq.MaxRetry(1))
	require.NoError(t, err)
	for range 3 { // more often than the task's limit of retries
		require.ErrorIs(t, next(t, heard), lock.ErrNotAcquired)
	}
	require.NoError(t, held.Unlock())
	for err = next(t, heard); err != nil; err = next(t, heard) {
		require.ErrorIs(t, err, lock.ErrNotAcquired)
	}
	require.Zero(t, <-retries)
}

// TestATaskIsProcessedOnce checks that under Once a task is not processed again when asynq did not
// learn its result and delivers it again.
func TestATaskIsProcessedOnce(t *testing.T) {
	addr := miniredis.RunT(t).Addr()
	client := asynq.NewClient(asynq.RedisClientOpt{Addr: addr})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	heard, ran := make(chan error, 1000), make(chan struct{}, 1000)
	unheard := errors.New("asynq does not learn that it is done")
	inner := guarded(newLocks(t, memlock.New()), &lock.Policy{Once: true}, func(ctx context.Context, _ *asynq.Task) error {
		ran <- struct{}{}
		if n, _ := asynq.GetRetryCount(ctx); n == 0 {
			return errors.New("fails once, so that it is not completed")
		}
		return nil
	})
	serve(t, addr, asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		err := inner.ProcessTask(ctx, task)
		if n, _ := asynq.GetRetryCount(ctx); err == nil && n < 3 {
			return unheard
		}
		return err
	}), heard)
	_, err := client.Enqueue(invoice)
	require.NoError(t, err)
	require.Error(t, next(t, heard))
	require.ErrorIs(t, next(t, heard), unheard) // the second time, which completes it
	require.ErrorIs(t, next(t, heard), unheard) // done before
	require.NoError(t, next(t, heard))
	require.Len(t, ran, 2)
}
