package cronlock

import (
	"context"
	"errors"

	"github.com/robfig/cron/v3"

	lock "github.com/lockgen/lockgen/runtime"
)

// Options of a job. The zero value is the default, and so is nil.
type Options struct {
	// Context is what runs begin with: its end ends waits and jobs. nil: no end.
	Context context.Context

	// Logger hears why a run did not happen or failed: by Info that another process holds
	// the lock or has completed the tick, by Error all else. nil: cron.DefaultLogger,
	// which prints errors alone.
	Logger cron.Logger
}

// Exclusive returns a wrapper, for cron.WithChain or cron.NewChain, of jobs that run under
// the lock on key, one at a time over all processes. All jobs that it wraps have the one
// key. A run blocks as p says: with Try it is skipped if another holds the lock, otherwise
// it waits. p may be nil.
//
// The job does not hear that the lock was lost; one that must is a [Job]. Exclusive panics
// with a *lock.Error as [Job] does.
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
// goes to the Logger. A panic of fn releases the lock and goes on, to cron.Recover if the
// Cron's chain has it.
//
// It panics with a *lock.Error if p can't be right, l does not have its kind of lock, or p
// has Once, for which there is [AddOnce].
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

// notRun is an error of the acquire, which a job's own error may look like.
type notRun struct{ error }

func (e *notRun) Unwrap() error { return e.error }

// report tells the Logger what became of a run; tick is "" of a job without ticks.
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
