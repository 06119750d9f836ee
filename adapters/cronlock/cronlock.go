package cronlock

import (
	"context"
	"errors"

	"github.com/robfig/cron/v3"

	lock "github.com/lockgen/lockgen/runtime"
)

// Options of a job. The zero value is the default, and so is nil.
type Options struct {
	// Context is the parent of the contexts of all runs. When it ends, waits and jobs end.
	// nil means context.Background().
	Context context.Context

	// Logger gets the reason if a run did not happen or failed. It gets it by Info if another
	// process holds the lock or has completed the tick, else by Error. nil means
	// cron.DefaultLogger, which prints only errors.
	Logger cron.Logger
}

// Exclusive returns a wrapper for cron.WithChain or cron.NewChain. It runs jobs under the lock
// on key, one at a time over all processes. All jobs that it wraps share the key. If another
// holds the lock, a run waits as p says; with Try it is skipped. p may be nil.
//
// The job does not learn that the lock was lost. Use [Job] if it must. Exclusive panics with a
// *lock.Error in the same cases as [Job].
func Exclusive(l *lock.Locker, p *lock.Policy, key string, opts *Options) cron.JobWrapper {
	g := newGuard(l, p, key, opts)
	g.mustNotBeOnce()
	return func(j cron.Job) cron.Job {
		return cron.FuncJob(func() {
			g.run(func(context.Context) error {
				j.Run()
				return nil
			})
		})
	}
}

// Job returns a cron.Job that runs fn under the lock on key, as [Exclusive] does. fn gets
// the lock's context, which ends with cause lock.ErrLost when the lock is lost. Its error
// goes to the Logger. If fn panics, the lock is released and the panic continues, to
// cron.Recover if the Cron's chain has it.
//
// Job panics with a *lock.Error if p is invalid, if l does not support its kind of lock, or if
// p has Once: use [AddOnce] for that.
func Job(l *lock.Locker, p *lock.Policy, key string, fn func(ctx context.Context) error, opts *Options) cron.Job {
	g := newGuard(l, p, key, opts)
	g.mustNotBeOnce()
	return cron.FuncJob(func() { g.run(fn) })
}

// guard is the lock of a job.
type guard struct {
	locks   *lock.Locker
	policy  *lock.Policy
	key     string
	context context.Context
	logger  cron.Logger
}

func newGuard(l *lock.Locker, p *lock.Policy, key string, opts *Options) *guard {
	if p == nil {
		p = &lock.Policy{}
	}
	if opts == nil {
		opts = &Options{}
	}
	l.MustSupport(p)
	g := &guard{locks: l, policy: p, key: key, context: opts.Context, logger: opts.Logger}
	if g.context == nil {
		g.context = context.Background()
	}
	if g.logger == nil {
		g.logger = cron.DefaultLogger
	}
	return g
}

func (g *guard) mustNotBeOnce() {
	if g.policy.Once {
		panic(g.invalid("a policy with Once needs ticks, which AddOnce knows"))
	}
}

// run runs fn under the lock.
func (g *guard) run(fn func(ctx context.Context) error) {
	g.report("", g.guarded(fn))
}

func (g *guard) guarded(fn func(ctx context.Context) error) (err error) {
	ctx, held, err := g.locks.Acquire(g.context, g.policy, g.key)
	if err != nil {
		return &notRun{err}
	}
	defer held.Release(&err)
	return fn(ctx)
}

// notRun marks an error of the acquire, so that it differs from a similar error of the job.
type notRun struct{ error }

func (e *notRun) Unwrap() error { return e.error }

// report tells the Logger how a run ended. tick is "" for a job without ticks.
func (g *guard) report(tick string, err error) {
	about := []any{"key", g.key}
	if tick != "" {
		about = append(about, "tick", tick)
	}
	_, skipped := err.(*notRun)
	switch {
	case err == nil:
	case skipped && errors.Is(err, lock.ErrDone):
		g.logger.Info("done by another process", about...)
	case skipped && errors.Is(err, lock.ErrNotAcquired):
		g.logger.Info("skipped", append(about, "reason", err)...)
	case skipped:
		g.logger.Error(err, "did not run", about...)
	default:
		g.logger.Error(err, "job failed", about...)
	}
}
