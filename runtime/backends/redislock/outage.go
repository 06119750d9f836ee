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

// watchEvery is how often it is looked whether a slot has gone to another server.
const watchEvery = 200 * time.Millisecond

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

// watch calls cancel when, while a call for key has no answer, a Cluster gives
// key's slot to another server than had it a moment after the call was sent: that
// is most likely the one that was asked, and its answer would be waited for in vain.
// It returns what ends that.
func (r *router) watch(ctx context.Context, key string, cancel func()) (stop func() bool) {
	if r.cluster() == nil {
		return func() bool { return false }
	}
	return time.AfterFunc(suspicious/2, func() {
		_, before, err := r.home(ctx, key)
		for now := before; err == nil; _, now, err = r.home(ctx, key) {
			if now != before {
				cancel()
				return
			}
			r.reload()
			if !pause(ctx, watchEvery) {
				return
			}
		}
	}).Stop
}

// suspecting returns a context for a call for key. Where another server may take the place
// of one that has fallen silent it ends when that is so, and after limit in any case.
func (r *router) suspecting(ctx context.Context, key string, limit time.Duration) (_ context.Context, stop func()) {
	if !r.roams {
		return ctx, func() {}
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	unwatch := r.watch(ctx, key, cancel)
	return ctx, func() {
		unwatch()
		cancel()
	}
}
