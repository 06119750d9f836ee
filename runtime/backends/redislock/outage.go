package redislock

import (
	"context"
	"time"
)

// outageLimit is how long who waits for a lock waits for a server to take the
// place of one that is gone, all calls together: some seconds more than that
// takes where a node is given up after 5 s.
const outageLimit = 10 * time.Second

// resendLimit is how long a call may have taken if a server by itself is to be sent it
// a third time: longer than all attempts take where it is at least refused.
const resendLimit = 1500 * time.Millisecond

// resendAfter is when a call without an answer is sent again. Each resend is
// idempotent; after the last the outcome is unknown.
var resendAfter = []time.Duration{0, 20 * time.Millisecond, 100 * time.Millisecond, 300 * time.Millisecond}

// outage is a time in which a server takes no calls.
type outage struct{ begun, seen time.Time }

// resends reports whether a call that was first sent then is sent again after this
// attempt, whoever waits for it. No other server takes the place of one by itself: if
// it is silent, a second attempt finds out whether it was the connection that was
// dead, and further ones would each take as long as the client's timeouts.
func (r *router) resends(attempt int, first time.Time) bool {
	return attempt == 0 || attempt < len(resendAfter) && (r.roams || time.Since(first) < resendLimit)
}

// bears reports whether a call that l could not do since then may go on trying:
// neither has it tried for too long, nor have others before it. Without the
// latter bound, those who wait in line would do so one after the other, for a
// server that is gone for good. A nil l is for calls that no batcher was found for.
func (r *router) bears(l *batcher, since time.Time) bool {
	if !r.roams {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	o := &r.outage
	if l != nil {
		o = &l.outage
		l.troubled.Store(true)
	}
	now := time.Now()
	if now.Sub(o.seen) > outageLimit { // another one
		o.begun = now
	}
	o.seen = now
	return now.Sub(o.begun) < outageLimit && now.Sub(since) < outageLimit
}

// recovered notes that l does calls again.
func (r *router) recovered(l *batcher) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l.troubled.Store(false)
	l.outage, r.outage = outage{}, outage{}
}

// suspecting returns a context for an attempt to do c. Where another server may take the
// place of one that has fallen silent it ends after limit, but for a renewal, whose late
// answer counts too; and what is known of the servers is asked for anew before.
func (r *router) suspecting(ctx context.Context, c *call, limit time.Duration) (_ context.Context, stop func()) {
	if !r.roams {
		return ctx, func() {}
	}
	reload := time.AfterFunc(suspicious/2, r.reload)
	cancel := func() {}
	if !c.renews {
		ctx, cancel = context.WithTimeout(ctx, limit)
	}
	return ctx, func() {
		reload.Stop()
		cancel()
	}
}
