package client

import (
	"cmp"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	lock "github.com/lockgen/lockgen/runtime"

	"github.com/lockgen/lockgen/internal/soak/history"
)

// scene is one way to use a lock.
type scene struct {
	name   string
	weight int
	play   func(*worker)
}

var scenes = []scene{
	{"wait", 28, (*worker).wait},
	{"try", 10, (*worker).try},
	{"patient", 8, (*worker).patient},
	{"cancelled", 14, (*worker).cancelled},
	{"reenter", 10, (*worker).reenter},
	{"timeout race", 6, (*worker).timeoutRace},
	{"siblings", 5, (*worker).siblings},
	{"nested", 8, (*worker).nested},
	{"several", 8, (*worker).several},
	{"deadlock", 2, (*worker).deadlock},
	{"invalid", 2, (*worker).invalid},
	{"panic", 3, (*worker).panics},
	{"goexit", 2, (*worker).goexit},
	{"long", 1, (*worker).long}, // rare, so that others get a turn
	{"fixed", 2, (*worker).fixed},
	{"max", 1, (*worker).max},
}

func (w *worker) draw() scene {
	if len(w.cfg.LockKinds) > 0 && w.rng.IntN(2) == 0 {
		return scene{"kinds", 0, (*worker).kinds}
	}
	if w.cfg.Extras.Condition && w.rng.IntN(4) == 0 {
		return scene{"condition", 0, (*worker).condition}
	}
	if w.cfg.NoFaults && w.rng.IntN(12) == 0 {
		return scene{"long", 0, (*worker).long}
	}
	sum := 0
	for _, s := range scenes {
		sum += s.weight
	}
	n := w.rng.IntN(sum)
	for _, s := range scenes {
		if n < s.weight {
			return s
		}
		n -= s.weight
	}
	panic("unreachable")
}

// do acquires keys with p, runs section and releases the keys.
func (w *worker) do(ctx context.Context, p *lock.Policy, section func(*guard), keys ...string) (err error) {
	g, err := w.acquire(ctx, nil, p, keys...)
	if err != nil {
		return err
	}
	defer g.release(&err)
	section(g)
	return nil
}

// wait queues for a bounded time. The time is in whole grains, so the wait often ends at the
// same instant at which the lock is handed on.
func (w *worker) wait() {
	p := w.policy()
	p.Wait = w.between(20*time.Millisecond, 1200*time.Millisecond)
	if w.cfg.Grain > 0 && w.rng.IntN(2) == 0 {
		p.Wait = w.between(time.Millisecond, 25*time.Millisecond)
	}
	d := w.brief()
	_ = w.do(context.Background(), p, func(g *guard) { g.section(d) }, w.key())
}

func (w *worker) try() {
	p := w.policy()
	p.Try = true
	d := w.brief()
	_ = w.do(context.Background(), p, func(g *guard) { g.section(d) }, w.key())
}

// patient waits without a bound. It must get the lock in the end.
func (w *worker) patient() {
	d := w.brief()
	_ = w.do(context.Background(), w.policy(), func(g *guard) { g.section(d) }, w.key())
}

// cancelled gives up at a random moment: while it waits, sends, is inside, or releases.
func (w *worker) cancelled() {
	// From a microsecond to 150 ms, with a uniform logarithm.
	after := time.Duration(math.Exp(w.rng.Float64()*math.Log(150e3))) * time.Microsecond
	ctx, cancel := context.WithCancel(context.Background())
	if w.rng.IntN(2) == 0 {
		ctx, cancel = context.WithTimeout(context.Background(), after)
	} else {
		defer time.AfterFunc(after, cancel).Stop()
	}
	defer cancel()
	_ = w.do(ctx, w.policy(), func(g *guard) { g.section(20 * time.Millisecond) }, w.key())
}

// reenter acquires the same lock again inside it.
func (w *worker) reenter() {
	p := w.policy()
	p.Reentrant = true
	p.Wait = time.Second
	key := w.key()
	depth := 1 + w.rng.IntN(3)
	_ = w.do(context.Background(), p, func(g *guard) { w.deeper(g.ctx, g, p, key, depth) }, key)
}

func (w *worker) deeper(ctx context.Context, g *guard, p *lock.Policy, key string, depth int) {
	if depth == 0 {
		g.section(w.brief())
		return
	}
	r := history.Record{Op: history.Reenter, Key: key, Hold: g.grants[0].Hold, Call: w.out.Now(), Outcome: history.OK}
	inner, held, err := w.locker.Acquire(ctx, p, key)
	r.Ret = w.out.Now()
	if err != nil {
		r.Outcome, r.Note = history.Lost, err.Error()
		w.out.End(r)
		if !errors.Is(err, lock.ErrLost) && ctx.Err() == nil {
			w.broken(key, "re-entry failed: %v", err)
		}
		return
	}
	defer held.Release(nil)
	token, _ := lock.Token(inner)
	r.Token = token
	w.out.End(r)
	if token != g.grants[0].Token {
		w.broken(key, "re-entry into the hold with token %d has token %d", g.grants[0].Token, token)
	}
	w.deeper(inner, g, p, key, depth-1)
}

// timeoutRace lets callers wait for a lock that is released at the same instant at which their
// waits end.
func (w *worker) timeoutRace() {
	p := w.policy()
	p.Wait = time.Second
	key := w.key()
	d := w.between(time.Millisecond, 10*time.Millisecond)
	var waiting sync.WaitGroup
	_ = w.do(context.Background(), p, func(*guard) {
		for range 3 {
			short := *p
			short.Wait = d
			other := &worker{process: w.process, rng: rand.New(rand.NewPCG(w.rng.Uint64(), 0))}
			other.doing.Store(w.doing.Load())
			waiting.Go(func() { _ = other.do(context.Background(), &short, func(g *guard) { g.check() }, key) })
		}
		time.Sleep(d)
	}, key)
	waiting.Wait()
}

// siblings re-enter from several goroutines with one context. Only one may be inside at a time.
func (w *worker) siblings() {
	p := w.policy()
	p.Reentrant = true
	p.Wait = time.Second
	key := w.key()
	nap := w.between(0, 2*time.Millisecond)
	_ = w.do(context.Background(), p, func(g *guard) {
		var inside atomic.Int32
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				_, held, err := w.locker.Acquire(g.ctx, p, key)
				if err != nil {
					return
				}
				defer held.Release(nil)
				if inside.Add(1) != 1 {
					w.broken(key, "two siblings are inside one frame")
				}
				time.Sleep(nap)
				inside.Add(-1)
			})
		}
		all.Wait()
		g.section(0)
	}, key)
}

// nested acquires a second lock inside the first, in either order. A deadlock ends with the
// bounded wait.
func (w *worker) nested() {
	p := w.policy()
	p.Wait = w.between(20*time.Millisecond, 400*time.Millisecond)
	first, second := w.key(), w.key()
	if first == second {
		return
	}
	d := w.brief()
	_ = w.do(context.Background(), p, func(g *guard) {
		g.section(0)
		inner, err := w.acquire(g.ctx, g, p, second)
		if err != nil {
			return
		}
		defer inner.release(&err)
		inner.section(d)
	}, first)
}

func (w *worker) several() {
	if len(w.cfg.Keys) < 2 {
		return
	}
	p := w.policy()
	p.Wait = w.between(50*time.Millisecond, 800*time.Millisecond)
	keys := make([]string, 0, len(w.cfg.Keys))
	for _, i := range w.rng.Perm(len(w.cfg.Keys))[:2+w.rng.IntN(len(w.cfg.Keys)-1)] {
		keys = append(keys, w.cfg.Keys[i])
	}
	d := w.brief()
	_ = w.do(context.Background(), p, func(g *guard) { g.section(d) }, keys...)
}

// deadlock nests without reentrant, which must fail at once.
func (w *worker) deadlock() {
	p := w.policy()
	p.Wait = time.Second
	key := w.key()
	_ = w.do(context.Background(), p, func(g *guard) {
		_, held, err := w.locker.Acquire(g.ctx, p, key)
		held.Release(nil)
		if !errors.Is(err, lock.ErrDeadlock) && g.ctx.Err() == nil {
			w.broken(key, "a nested call without reentrant returned %v", err)
		}
	}, key)
}

// invalid asks for something impossible: nothing may be sent or acquired.
func (w *worker) invalid() {
	ttls := []time.Duration{-time.Millisecond, 1, 999 * time.Microsecond, -1 << 63}
	p := &lock.Policy{TTL: ttls[w.rng.IntN(len(ttls))], Try: true}
	key := w.key()
	_, held, err := w.locker.Acquire(context.Background(), p, key)
	held.Release(nil)
	if !errors.Is(err, lock.ErrInvalid) {
		w.broken(key, "an acquire with ttl %v returned %v", p.TTL, err)
	}
}

func (w *worker) panics() {
	key := w.key()
	defer func() {
		if r := recover(); r != nil && r != "on purpose" {
			panic(r)
		}
	}()
	p := w.policy()
	p.Wait = time.Second
	_ = w.do(context.Background(), p, func(g *guard) {
		g.section(0)
		panic("on purpose")
	}, key)
}

func (w *worker) goexit() {
	key := w.key()
	p := w.policy()
	p.Wait = time.Second
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = w.do(context.Background(), p, func(g *guard) {
			g.section(0)
			runtime.Goexit()
		}, key)
	}()
	<-done
}

// long works for longer than the lease, so that the watchdog renews it.
func (w *worker) long() {
	p := w.policy()
	p.Wait, p.TTL = time.Second, w.cfg.TTL
	d := w.between(p.TTL/2, p.TTL*time.Duration(cmp.Or(w.cfg.Longest, 2)))
	_ = w.do(context.Background(), p, func(g *guard) { g.section(d) }, w.key())
}

// fixed is not renewed, and sometimes works for longer than the lease.
func (w *worker) fixed() {
	p := w.policy()
	p.NoRenew, p.Wait, p.TTL = true, time.Second, w.cfg.TTL
	d := w.brief()
	if w.rng.IntN(3) == 0 {
		d = w.between(p.TTL*3/4, p.TTL*5/4)
	}
	_ = w.do(context.Background(), p, func(g *guard) { g.section(d) }, w.key())
}

// max has a limit for its renewals.
func (w *worker) max() {
	p := w.policy()
	p.Max, p.Wait, p.TTL = w.cfg.TTL/2, time.Second, w.cfg.TTL
	d := w.between(0, p.TTL*3/2)
	_ = w.do(context.Background(), p, func(g *guard) { g.section(d) }, w.key())
}
