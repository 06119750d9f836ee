package cronlock

import (
	"context"
	"fmt"

	"github.com/robfig/cron/v3"

	lock "github.com/lockgen/lockgen/runtime"
)

// AddOnce adds fn to c, to be run at each tick of spec by one process of all that add it
// under this key: see the package's documentation. spec is as for c.AddJob, but for
// "@every". p has Once; a nil p is such a Policy with the defaults. The key is this job's
// alone: two jobs of one key have each other's ticks.
//
// A run blocks as p says while another process runs the key. With Try it is skipped then,
// and nobody is there to run the tick if that process fails; without, it waits, and is
// skipped when the tick is completed. fn gets the lock's context, and what it returns goes
// to the Logger, as with [Job].
//
// It returns an error if c can't parse spec or it is an "@every", and panics with a
// *lock.Error if p can't be right, lacks Once, or l does not have this kind of lock.
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
	added := make(chan struct{}) // closed when id is set: a Cron that runs may be faster
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
	if err != nil { // removed, or run by hand
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
