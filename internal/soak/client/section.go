package client

import (
	"context"
	"time"

	lock "github.com/lockgen/lockgen/runtime"

	"github.com/lockgen/lockgen/internal/soak/history"
)

// brief draws the length of most sections.
func (w *worker) brief() time.Duration {
	switch w.rng.IntN(5) {
	case 0:
		return 0
	case 1:
		return w.between(8*time.Millisecond, 24*time.Millisecond)
	}
	return w.between(0, 8*time.Millisecond)
}

// section works under the lock for d, or until its context ends. As users should, it calls
// Check before each write, and writes with the token.
func (g *guard) section(d time.Duration) {
	end := time.Now().Add(d)
	for {
		held := g.check()
		if held && g.mayWrite() && g.rng.IntN(2) == 0 {
			if g.rng.IntN(8) == 0 { // between Check and the write only the token protects
				time.Sleep(g.between(0, 3*time.Millisecond))
				g.gate()
			}
			g.write(g.grants[g.rng.IntN(len(g.grants))])
		}
		if g.ctx.Err() != nil || g.draining() || !time.Now().Before(end) {
			return
		}
		time.Sleep(min(g.between(200*time.Microsecond, 4*time.Millisecond), time.Until(end)))
		g.gate()
	}
}

// check calls Check for all locks of the chain and records the answer for each of
// them. If all are held, the context can only have ended because the caller ended it.
func (g *guard) check() bool {
	ended := g.ctx.Err() != nil
	call := g.out.Now()
	err := lock.Check(g.ctx)
	ret := g.out.Now()
	if err == nil && ended && g.caller.Err() == nil {
		g.broken(g.grants[0].Key, "the context of a lock that is held has ended: %v", context.Cause(g.ctx))
	}
	live := g.ctx.Err() == nil
	answer := history.OK
	if err != nil {
		answer = history.Lost
	}
	for one := g; one != nil; one = one.outer {
		for _, grant := range one.grants {
			g.out.End(history.Record{Op: history.Check, Key: grant.Key, Hold: grant.Hold, Token: grant.Token,
				Call: call, Ret: ret, Outcome: answer, Live: live})
		}
	}
	return err == nil
}

// write does one write to the fenced register.
func (g *guard) write(grant history.Record) {
	token, ok := lock.TokenOf(g.ctx, grant.Key)
	if !ok { // perhaps lost since Check: TokenOf does not say, but the register checks the token
		token = grant.Token
	}
	r := history.Record{Op: history.Write, Key: grant.Key, Hold: grant.Hold, Token: token, Call: g.out.Now(), Outcome: history.OK}
	accepted, err := g.reg.Write(history.Attempt{Key: grant.Key, Proc: g.cfg.Proc, Hold: grant.Hold, Token: token})
	switch {
	case err != nil:
		r.Outcome, r.Note = history.Unknown, err.Error()
	case !accepted:
		r.Outcome = history.Fail
	}
	g.out.End(r)
}
