package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	lock "github.com/lockgen/lockgen/runtime"

	"github.com/lockgen/lockgen/internal/soak/history"
)

// Extras are options of calls in addition to the kind of lock.
type Extras struct {
	Queue     bool // a limit of the calls that wait for the key
	Delay     bool // the lock stays closed for a while if it is lost
	Condition bool // waiting under the lock for a condition
}

// Names returns the names of Kinds and of the Extras.
func Names() []string { return append(Kinds(), "queue", "delay", "condition") }

// DrawExtras draws some Extras. If only is the name of one, it always draws that one.
func DrawExtras(rng *rand.Rand, only string) Extras {
	draw := func(name string) bool { return rng.IntN(4) == 0 || name == only }
	return Extras{Queue: draw("queue"), Delay: draw("delay"), Condition: draw("condition")}
}

// ask returns p with the Extras of a call. nested says that the call already holds a lock.
func (x Extras) ask(w *worker, p *lock.Policy, nested bool, keys int) *lock.Policy {
	if keys > 1 || x == (Extras{}) {
		return p
	}
	more := *p
	if x.Queue && !p.Try && !nested && w.rng.IntN(2) == 0 {
		more.Queue = 1 + w.rng.IntN(3)
	}
	if x.Delay && p.Sticky == 0 && w.rng.IntN(2) == 0 {
		more.Delay = []time.Duration{w.cfg.TTL / 4, w.cfg.TTL / 2, w.cfg.TTL}[w.rng.IntN(3)]
	}
	return &more
}

// asked is the context key for the hold number of a call.
type asked struct{}

// holdOf returns the hold number in ctx, or 0.
func holdOf(ctx context.Context) uint64 {
	n, _ := ctx.Value(asked{}).(uint64)
	return n
}

// condition waits for a condition under a lock, or signals it.
func (w *worker) condition() {
	p, key := w.policy(), w.key()
	p.Wait = time.Second
	if i := slices.IndexFunc(w.cfg.LockKinds, func(k LockKind) bool { return k.Kind == "fair" || k.Kind == "read-write" }); i >= 0 && w.rng.IntN(2) == 0 {
		key = w.cfg.LockKinds[i].Key
		p.Fair = w.cfg.LockKinds[i].Kind == "fair"
		p.Write = !p.Fair
	}
	if w.rng.IntN(3) == 0 {
		w.lateCall(p, key)
		return
	}
	_ = w.do(context.Background(), p, func(g *guard) {
		if w.rng.IntN(4) == 0 { // until a renewal is running
			g.section(p.TTL/3 - w.between(0, 4*time.Millisecond))
		} else {
			g.section(w.brief())
		}
		switch n := w.rng.IntN(8); {
		case n < 2: // often signalled at the moment at which it gives up
			g.await(w.between(time.Millisecond, 30*time.Millisecond))
		case n < 4:
			g.await(w.between(20*time.Millisecond, 2*time.Second))
		case n < 7:
			g.call(history.Signal, (*lock.Cond).Signal)
		default:
			g.call(history.Broadcast, (*lock.Cond).Broadcast)
		}
		if g.ctx.Err() == nil {
			g.section(w.brief())
		}
	}, key)
}

// lateCall lets two calls wait. It signals one of them when the first is about to give up. If the first
// gives up, the other must get the signal.
func (w *worker) lateCall(p *lock.Policy, key string) {
	d := w.between(5*time.Millisecond, 40*time.Millisecond)
	var waiting sync.WaitGroup
	for _, long := range []time.Duration{d, 1200 * time.Millisecond} {
		other := &worker{process: w.process, rng: rand.New(rand.NewPCG(w.rng.Uint64(), 0))}
		other.doing.Store(w.doing.Load())
		waiting.Go(func() { _ = other.do(context.Background(), p, func(g *guard) { g.await(long) }, key) })
	}
	time.Sleep(d + w.between(0, 2*time.Millisecond))
	_ = w.do(context.Background(), p, func(g *guard) { g.call(history.Signal, (*lock.Cond).Signal) }, key)
	waiting.Wait()
}

// call signals the condition, to one waiter or to all.
func (g *guard) call(op history.Op, call func(*lock.Cond, context.Context) error) {
	grant := g.grants[0]
	r := g.out.Begin(history.Record{Op: op, Key: grant.Key, Hold: grant.Hold, Token: grant.Token, Outcome: history.OK})
	if err := call(lock.NewCond(g.locker, grant.Key), g.ctx); err != nil {
		r.Outcome, r.Note = history.Unknown, err.Error()
	}
	g.out.End(r)
}

// await waits for a signal of the condition, for d at most. After that the hold is a new one.
func (g *guard) await(d time.Duration) {
	before := g.grants[0]
	again := before
	again.Hold, again.Again, again.Seq = g.holds.Add(1), true, 0
	ctx, cancel := context.WithTimeout(context.WithValue(g.ctx, asked{}, again.Hold), d)
	defer cancel()
	var ended atomic.Int64
	defer context.AfterFunc(ctx, func() { ended.Store(g.out.Now()) })()
	r := g.out.Begin(history.Record{Op: history.Await, Key: before.Key, Hold: before.Hold, Next: again.Hold, Token: before.Token, Kind: before.Kind})
	err := lock.NewCond(g.locker, before.Key).Wait(ctx)
	r.Ret = g.out.Now()
	r.Outcome, r.CtxEnd = history.OK, ended.Load()
	token, held := lock.TokenOf(g.ctx, before.Key)
	switch {
	case errors.Is(err, lock.ErrLost):
		r.Outcome = history.Lost
	case err != nil && token == before.Token: // the lock was not released
		r.Outcome = history.Refused
	case err != nil && ctx.Err() == nil: // the engine refused the lock meanwhile
		r.Outcome = history.Unknown
	case err != nil:
		r.Outcome = history.Fail
	case held && token == before.Token:
		g.broken(before.Key, "a Wait that was signalled returns with its old token %d", token)
	}
	if err != nil {
		r.Note = err.Error()
	}
	g.out.End(r)
	if r.Outcome == history.Lost || r.Outcome == history.Refused {
		return
	}
	again.Call, again.Ret, again.Token = r.Call, r.Ret, token
	g.out.End(again)
	g.grants[0] = again
	g.check()
}
