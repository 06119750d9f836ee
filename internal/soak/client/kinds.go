package client

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"

	"github.com/lockgen/lockgen/internal/soak/history"
)

// LockKind is a key and the kind of lock that all callers take on it.
type LockKind struct {
	Key     string
	Kind    string // one of Kinds
	Permits int    // the number of permits, for "permits"
}

// Kinds returns the kinds of locks other than the mutex. A read-write lock is one kind.
func Kinds() []string { return []string{"read-write", "fair", "permits", "once"} }

// DrawKinds draws one or two kinds, each with a key that begins with prefix. If only is a kind, it
// draws only that kind.
func DrawKinds(rng *rand.Rand, prefix, only string) (some []LockKind) {
	all := Kinds()
	if !slices.Contains(all, only) {
		only = ""
	}
	for _, i := range rng.Perm(len(all))[:1+rng.IntN(2)] {
		k := LockKind{Key: history.KindedKey(prefix, all[i]), Kind: all[i]}
		if only != "" {
			k.Kind, k.Key = only, history.KindedKey(prefix, only)
		}
		if k.Kind == "permits" {
			k.Permits = 2 + rng.IntN(3)
		}
		if some = append(some, k); only != "" {
			break
		}
	}
	return some
}

// kindOf returns the kind of lock that p asks for, as driver.Kind names it.
func kindOf(p *lock.Policy) string {
	switch {
	case p.Read:
		return driver.Read.String()
	case p.Write:
		return driver.Write.String()
	case p.Fair:
		return driver.Fair.String()
	case p.Permits > 0:
		return driver.Permits.String()
	case p.Once:
		return driver.Once.String()
	}
	return ""
}

// kinds acquires a lock other than a mutex, in one of the ways in which other scenes acquire a mutex.
func (w *worker) kinds() {
	k := w.cfg.LockKinds[w.rng.IntN(len(w.cfg.LockKinds))]
	p := w.policy()
	w.setKind(p, k)
	d := w.brief()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	switch n := w.rng.IntN(100); {
	case n < 50:
		p.Wait = w.between(20*time.Millisecond, 1200*time.Millisecond)
	case n < 60:
		p.Try = true
	case n < 75: // cancelled at a random moment
		after := time.Duration(math.Exp(w.rng.Float64()*math.Log(150e3))) * time.Microsecond
		defer time.AfterFunc(after, cancel).Stop()
		d = 20 * time.Millisecond
	case n < 78: // for longer than the lease, so that the watchdog renews it
		p.Wait, p.TTL = time.Second, w.cfg.TTL
		d = w.between(p.TTL/2, p.TTL*2)
	}
	if w.rng.IntN(10) == 0 {
		p.NoRenew = true
	}
	_ = w.do(ctx, p, func(g *guard) { g.kinded(p, d) }, k.Key)
}

// setKind makes p ask for k, and draws its other options.
func (w *worker) setKind(p *lock.Policy, k LockKind) {
	switch k.Kind {
	case "read-write":
		p.Read = w.rng.IntN(3) > 0
		p.Write = !p.Read
	case "fair":
		p.Fair = true
	case "permits":
		p.Permits = k.Permits - w.rng.IntN(5)/4 // some callers have one permit less, as during a roll-out
		p.Weight = 1 + w.rng.IntN(p.Permits)
	case "once":
		p.Once = true
		// Clocks differ by some ticks.
		w.tick = fmt.Sprint(w.out.Now()/int64(tickEvery) + int64(w.rng.IntN(6)))
	}
}

// tickEvery is the time between two ticks.
const tickEvery = 100 * time.Millisecond

// kinded does the section of a lock other than a mutex.
func (g *guard) kinded(p *lock.Policy, d time.Duration) {
	g.section(d)
	switch n := g.rng.IntN(4); {
	case p.Write && n == 0:
		g.leave(d)
	case p.Write && n == 1:
		g.nestedRead(p)
	case p.Read && n == 0:
		g.upgrade(p)
	case p.Once && n > 0: // otherwise the job has failed
		g.held.Complete()
		g.completes = true
	}
}

// leave downgrades from the write side and reads for a while.
func (g *guard) leave(d time.Duration) {
	grant := g.grants[0]
	r := g.out.Begin(history.Record{Op: history.Leave, Key: grant.Key, Hold: grant.Hold, Outcome: history.OK})
	ctx, cancel := context.WithTimeout(g.ctx, time.Second)
	err := g.held.Downgrade(ctx)
	cancel()
	g.grants[0].Kind = driver.Read.String()
	if err != nil {
		r.Outcome, r.Note = history.Unknown, err.Error()
	}
	g.out.End(r)
	if err == nil {
		g.section(d)
	}
}

// nestedRead acquires the read side of a lock whose write side it holds.
func (g *guard) nestedRead(p *lock.Policy) {
	inner := *p
	inner.Read, inner.Write, inner.Try, inner.Wait = true, false, false, time.Second
	_, held, err := g.locker.Acquire(g.ctx, &inner, g.grants[0].Key)
	held.Release(nil)
	if err != nil && !errors.Is(err, lock.ErrLost) && g.ctx.Err() == nil {
		g.broken(g.grants[0].Key, "a nested read under the write side failed: %v", err)
	}
}

// upgrade asks for the write side under the read side, which must fail at once.
func (g *guard) upgrade(p *lock.Policy) {
	inner := *p
	inner.Read, inner.Write, inner.Try, inner.Wait = false, true, false, time.Second
	_, held, err := g.locker.Acquire(g.ctx, &inner, g.grants[0].Key)
	held.Release(nil)
	if !errors.Is(err, lock.ErrDeadlock) && g.ctx.Err() == nil {
		g.broken(g.grants[0].Key, "a nested write under the read side returned %v", err)
	}
}

// mayWrite reports whether g excludes all others.
func (g *guard) mayWrite() bool {
	kind := g.grants[0].Kind
	return kind != driver.Read.String() && kind != driver.Permits.String()
}

// Probe acquires the lock once, as a new process does. Without a kind the lock is a mutex.
func (k LockKind) Probe(ctx context.Context, l *lock.Locker) error {
	p, tick := &lock.Policy{TTL: time.Second}, ""
	switch k.Kind {
	case "read-write":
		p.Write = true
	case "fair":
		p.Fair = true
	case "permits":
		p.Permits, p.Weight = k.Permits, k.Permits
	case "once":
		p.Once, tick = true, "the last"
	}
	var held *lock.Hold
	var err error
	if p.Once {
		_, held, err = l.AcquireOnce(ctx, p, k.Key, tick)
	} else {
		_, held, err = l.Acquire(ctx, p, k.Key)
	}
	held.Release(nil)
	return err
}
