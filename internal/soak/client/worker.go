package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	lock "github.com/lockgen/lockgen/runtime"

	"github.com/lockgen/lockgen/internal/soak/history"
)

// worker is one goroutine that plays one scene after another.
type worker struct {
	*process
	rng   *rand.Rand
	reg   Register
	doing atomic.Pointer[string]
	tick  string // for the next acquire with Once
}

func (w *worker) run() {
	defer w.reg.Close()
	defer w.doing.Store(nil)
	for !w.draining() {
		w.gate()
		s := w.draw()
		w.doing.Store(&s.name)
		s.play(w)
	}
}

func (w *worker) draining() bool {
	select {
	case <-w.stop:
		return true
	default:
		return false
	}
}

// broken records that the runtime broke a guarantee of its API.
func (w *worker) broken(key, format string, args ...any) {
	w.out.End(history.Record{Op: history.Broken, Key: key, Call: w.out.Now(), Note: fmt.Sprintf(format, args...)})
}

func (w *worker) key() string { return w.cfg.Keys[w.rng.IntN(len(w.cfg.Keys))] }

// policy returns a policy of a mutex with one of two ttls. The same key is locked with both.
func (w *worker) policy() *lock.Policy {
	p := &lock.Policy{Method: "Soak." + *w.doing.Load(), TTL: w.cfg.TTL}
	if w.rng.IntN(3) == 0 {
		p.TTL = w.cfg.TTL * 5 / 2
	}
	return p
}

// between draws a time in whole grains.
func (w *worker) between(least, most time.Duration) time.Duration {
	d := least + time.Duration(w.rng.Int64N(int64(most-least)+1))
	if g := w.cfg.Grain; g > 0 {
		d = (d + g - 1).Truncate(g)
	}
	return d
}

// stickyTime draws one of a few times. With many different ones a kept lease would rarely be used again.
func (w *worker) stickyTime() time.Duration {
	return []time.Duration{w.cfg.TTL / 4, w.cfg.TTL, 3 * w.cfg.TTL}[w.rng.IntN(3)]
}

// guard is the hold of a worker: one lock, or several acquired together.
type guard struct {
	*worker
	caller context.Context // the context of the acquire
	ctx    context.Context
	held   *lock.Hold
	grants []history.Record // one for each lock
	outer  *guard

	completes bool // Complete was called for the tick
}

// acquire acquires keys, one or several, with outer's context, or with ctx if
// outer is nil.
func (w *worker) acquire(ctx context.Context, outer *guard, p *lock.Policy, keys ...string) (*guard, error) {
	g := &guard{worker: w, caller: ctx, outer: outer}
	if w.cfg.Sticky && kindOf(p) == "" && !p.NoRenew && w.rng.IntN(2) == 0 {
		kept := *p
		kept.Sticky = w.stickyTime()
		p = &kept
	}
	p = w.cfg.Extras.ask(w, p, outer != nil, len(keys))
	for _, key := range keys {
		g.grants = append(g.grants, w.out.Begin(history.Record{Op: history.Acquire, Key: key, Hold: w.holds.Add(1),
			TTL: int64(p.TTL), Wait: int64(p.Wait), Kept: int64(p.Sticky), Bound: p.Queue, Delay: int64(p.Delay), Renews: !p.NoRenew && p.Max == 0, Several: len(keys) > 1,
			Kind: kindOf(p), Limit: p.Permits, Weight: p.Weight, Tick: w.tick}))
	}
	ctx = context.WithValue(ctx, asked{}, g.grants[0].Hold)
	var ended atomic.Int64
	stop := context.AfterFunc(ctx, func() { ended.Store(w.out.Now()) })
	defer stop()
	var err error
	switch {
	case p.Once:
		g.ctx, g.held, err = w.locker.AcquireOnce(ctx, p, keys[0], w.tick)
	case len(keys) == 1:
		g.ctx, g.held, err = w.locker.Acquire(ctx, p, keys[0])
	default:
		g.ctx, g.held, err = w.locker.AcquireAll(ctx, requests(p, keys)...)
	}
	w.tick = ""
	ret := w.out.Now()
	if ctx.Err() != nil {
		ended.CompareAndSwap(0, ret) // the goroutine of AfterFunc may be late
	}
	for i := range g.grants {
		r := &g.grants[i]
		r.Ret, r.CtxEnd, r.Outcome = ret, ended.Load(), history.OK
		if err != nil {
			r.Outcome, r.Note = w.failure(r.Key, err, outer != nil), err.Error()
		} else if token, ok := lock.TokenOf(g.ctx, r.Key); ok {
			r.Token = token
		} else {
			w.broken(r.Key, "TokenOf has no token for a lock that was acquired")
		}
		w.out.End(*r)
	}
	if err != nil {
		// If the server can't be reached, failures would follow without a pause.
		time.Sleep(w.between(0, 4*time.Millisecond))
		return nil, err
	}
	return g, nil
}

func requests(p *lock.Policy, keys []string) []lock.Request {
	var reqs []lock.Request
	for _, key := range keys {
		reqs = append(reqs, lock.Request{Policy: p, Key: key})
	}
	return reqs
}

// failure returns what is known of the effect of a failed acquire, and checks that the error is one
// that it may return. Inside another lock the reason may be the loss of that lock.
func (w *worker) failure(key string, err error, nested bool) history.Outcome {
	switch {
	case nested && errors.Is(err, lock.ErrLost):
	case errors.Is(err, lock.ErrDeadlock) && strings.Contains(err.Error(), "wait for each other"): // the plans nest locks in both orders
	case errors.Is(err, lock.ErrDone):
		return history.Done
	case errors.Is(err, lock.ErrIndeterminate):
		return history.Unknown
	case errors.Is(err, lock.ErrUnavailable):
		return history.Refused
	case errors.Is(err, lock.ErrBusy):
		return history.TooMany
	case errors.Is(err, lock.ErrNotAcquired), errors.Is(err, lock.ErrClosed):
	default:
		w.broken(key, "acquire failed with an error that it must not return: %v", err)
	}
	return history.Fail
}

// release ends the hold. It is deferred with the address of the section's error.
func (g *guard) release(errp *error) {
	var records []history.Record
	for _, grant := range g.grants {
		records = append(records, g.out.Begin(history.Record{Op: history.Release, Key: grant.Key, Hold: grant.Hold, Token: grant.Token, Completes: g.completes}))
	}
	g.held.Release(errp)
	ret := g.out.Now()
	for _, r := range records {
		r.Ret, r.Outcome = ret, history.OK
		if errors.Is(*errp, lock.ErrLost) {
			r.Outcome, r.Note = history.Lost, (*errp).Error()
		}
		g.out.End(r)
	}
	g.afterwards()
}

// afterwards checks that the section's context owns no lock any more.
func (g *guard) afterwards() {
	key := g.grants[0].Key
	if err := lock.Check(g.ctx); !errors.Is(err, lock.ErrLost) {
		g.broken(key, "Check of a context whose section has returned returns %v", err)
	}
	if lock.Owns(g.ctx, key) {
		g.broken(key, "a context whose section has returned owns the lock")
	}
	if _, ok := lock.Token(g.ctx); ok {
		g.broken(key, "a context whose section has returned has a token")
	}
}
