package asynqlock

import (
	"context"
	"errors"
	"fmt"

	"github.com/hibiken/asynq"

	lock "github.com/lockgen/lockgen/runtime"
)

// Middleware returns a middleware that runs the handler of each task under a lock of l, on
// the key that key returns for the task. p may be nil. It waits for the lock as p says, and
// no longer than the task's context. key is called from any number of goroutines at once.
//
// If the lock can't be taken, the handler does not run, and the error wraps one of package
// lock, such as ErrNotAcquired or ErrUnavailable: asynq retries the task. An error of key is
// returned unchanged; if it wraps asynq.SkipRetry, asynq archives the task. With Once, the
// result for a task that was completed before is nil. An error of the handler is returned
// unchanged, joined with lock.ErrLost if the lock was lost while the handler ran.
//
// Middleware panics with a *lock.Error if p is invalid, or if l does not support its kind of
// lock.
func Middleware(l *lock.Locker, p *lock.Policy, key func(*asynq.Task) (string, error)) asynq.MiddlewareFunc {
	if p == nil {
		p = &lock.Policy{}
	}
	l.MustSupport(p)
	g := &guard{locks: l, policy: p, key: key}
	return func(next asynq.Handler) asynq.Handler {
		return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			return g.process(ctx, task, next)
		})
	}
}

// IsFailure is for asynq.Config. It reports false if the task did not get its lock because
// another holds it. Then asynq retries the task, after the delay of Config.RetryDelayFunc,
// without counting the retry.
func IsFailure(err error) bool {
	var n *notRun
	return err != nil && !(errors.As(err, &n) && errors.Is(n.err, lock.ErrNotAcquired))
}

type guard struct {
	locks  *lock.Locker
	policy *lock.Policy
	key    func(*asynq.Task) (string, error)
}

func (g *guard) process(ctx context.Context, task *asynq.Task, next asynq.Handler) (err error) {
	key, err := g.key(task)
	if err != nil {
		return err
	}
	ctx, held, err := g.acquire(ctx, key)
	switch {
	case errors.Is(err, lock.ErrDone):
		return nil
	case err != nil:
		return &notRun{err}
	}
	defer held.Release(&err)
	if err = next.ProcessTask(ctx, task); err == nil {
		held.Complete() // does nothing without Once
	}
	return err
}

func (g *guard) acquire(ctx context.Context, key string) (context.Context, *lock.Hold, error) {
	if !g.policy.Once {
		return g.locks.Acquire(ctx, g.policy, key)
	}
	id, ok := asynq.GetTaskID(ctx)
	if !ok {
		return ctx, nil, fmt.Errorf("%w: the context is none of asynq's, so the task has no ID for Once", lock.ErrInvalid)
	}
	return g.locks.AcquireOnce(ctx, g.policy, key, id)
}

// notRun marks an error of the acquire, so that it differs from a similar error of the handler.
type notRun struct{ err error }

func (e *notRun) Error() string { return "asynqlock: the task is to be retried: " + e.err.Error() }
func (e *notRun) Unwrap() error { return e.err }
