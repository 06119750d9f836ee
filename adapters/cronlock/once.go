package cronlock

import (
	"context"
	"fmt"

	"github.com/robfig/cron/v3"

	lock "github.com/lockgen/lockgen/runtime"
)

// AddOnce adds fn to c. At each tick of spec one of the processes that add fn under this key
// runs it: see the package's documentation. spec is as for c.AddJob, except that "@every" is
// refused. p must have Once; a nil p means a Policy with Once and the defaults. Don't share
// the key between jobs, because a tick that one completes is completed for the others too.
//
// While another process runs the job, a run waits as p says, and is skipped when the tick is
// completed. With Try it is skipped at once; then nobody runs the tick if that other process
// fails. fn gets the lock's context, and its error goes to the Logger, as with [Job].
//
// AddOnce returns an error if c can't parse spec, or if spec is an "@every". It panics with a
// *lock.Error if p is invalid or lacks Once, or if l does not support this kind of lock.
func AddOnce(
	c *cron.Cron, spec string, l *lock.Locker, p *lock.Policy, key string, fn func(ctx context.Context) error, opts *Options,
) (cron.EntryID, error) {
	if p == nil {
		p = &lock.Policy{Once: true}
	}
	g := newGuard(l, p, key, opts)
	if !p.Once {
		panic(g.invalid("AddOnce needs a Policy with Once"))
	}
	var id cron.EntryID
	added := make(chan struct{}) // closed when id is set: a running Cron may start the job before
	id, err := c.AddJob(spec, cron.FuncJob(func() {
		<-added
		g.once(c.Entry(id), fn)
	}))
	close(added)
	if err != nil {
		return 0, err
	}
	if _, every := c.Entry(id).Schedule.(cron.ConstantDelaySchedule); every {
		c.Remove(id)
		return 0, g.invalid(fmt.Sprintf("%q counts from the start of this process, so no other has its ticks", spec))
	}
	return id, nil
}

// once runs fn for the tick at which e began to run last.
func (g *guard) once(e cron.Entry, fn func(ctx context.Context) error) {
	tick, err := lock.TickTime(g.policy, "the planned time", e.Prev)
	if err != nil { // the entry was removed, or the job was run by hand
		g.report("", &notRun{g.invalid("the entry has no planned time: it was removed, or cron did not start the run")})
		return
	}
	g.report(tick, g.guardedOnce(tick, fn))
}

func (g *guard) guardedOnce(tick string, fn func(ctx context.Context) error) (err error) {
	ctx, held, err := g.locks.AcquireOnce(g.context, g.policy, g.key, tick)
	if err != nil {
		return &notRun{err}
	}
	defer held.Release(&err)
	if err = fn(ctx); err == nil {
		held.Complete()
	}
	return err
}

func (g *guard) invalid(text string) *lock.Error {
	return &lock.Error{Op: "policy", Method: g.policy.Method, Key: g.key, Err: fmt.Errorf("%w: %s", lock.ErrInvalid, text)}
}
