package asynqlock

import (
	"context"
	"errors"
	"fmt"

	"github.com/hibiken/asynq"

	lock "github.com/lockgen/lockgen/runtime"
)

// Middleware returns what runs the handler of each task under a lock of l, on the key that
// key makes of the task. p may be nil. It blocks as p says, until the task's context ends.
// key is called from any number of goroutines at once.
//
// The handler did not run, and asynq is to retry the task, if the error is of package lock:
// ErrNotAcquired, ErrUnavailable and others. An error of key is returned as it is: one that
// wraps asynq.SkipRetry archives the task. With Once, a task that was completed before is
// nil. What the handler returns is returned as it is, joined with lock.ErrLost if the lock
// was lost while it ran.
//
// Middleware panics with a *lock.Error if p can't be right, or l does not have its kind of
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

// IsFailure is for asynq.Config. It reports false for a task that could not have its lock
// because another holds it: asynq then retries the task without counting that. The delay
// is what Config.RetryDelayFunc says of the retries so far.
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
		held.Complete() // of a policy without Once it does nothing
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

// notRun is an error of the acquire, which a handler's own error may look like.
type notRun struct{ err error }

func (e *notRun) Error() string { return "asynqlock: the task is to be retried: " + e.err.Error() }
func (e *notRun) Unwrap() error { return e.err }
