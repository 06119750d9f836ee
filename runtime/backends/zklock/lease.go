package zklock

import (
	"context"
	"sync"
	"time"

	"github.com/lockgen/lockgen/runtime/backends/zklock/internal/client"
	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// lease is that of an entry that was first. It lasts as long as the session is proved
// to, and no longer than its own deadline, which renewals move.
type lease struct {
	*engine.Lease
	entry    *entry
	first, n uint64

	mu       sync.Mutex // guards the rest
	sent     bool       // a release was sent
	released bool       // a release was answered
}

// Tokens implements [driver.Lease].
func (l *lease) Tokens() (first, n uint64) { return l.first, l.n }

// Renew implements [driver.Lease]; see Backend.RenewAll.
func (l *lease) Renew(ctx context.Context, ttl time.Duration) error {
	return l.entry.entries.renew(ctx, []driver.Lease{l}, []time.Duration{ttl})[0]
}

// renew needs no request: the session's proof moves the deadlines of all its leases.
// But the first renewal of a lease has its node watched, so that a deletion is told.
func (es *entries) renew(ctx context.Context, leases []driver.Lease, ttls []time.Duration) []error {
	asked := driver.Now()
	answers := make([]<-chan client.Answer, len(leases))
	for i, one := range leases {
		answers[i] = one.(*lease).guard()
	}
	errs := make([]error, len(leases))
	for i, one := range leases {
		l := one.(*lease)
		l.mu.Lock()
		if l.sent || !l.Extend(asked.Add(ttls[i])) {
			errs[i] = driver.ErrLost
		}
		l.mu.Unlock()
	}
	for i, one := range leases {
		if answers[i] == nil || errs[i] != nil {
			continue
		}
		if _, err := await(ctx, answers[i]); isNoNode(err) {
			one.(*lease).Close()
			errs[i] = driver.ErrLost
		}
	}
	return errs
}

// guard has the server tell if somebody deletes the node, unless it will already;
// the channel is nil then. A short hold, which is never renewed, does without.
func (l *lease) guard() <-chan client.Answer {
	e := l.entry
	state := e.state()
	if e.session.watches.setOn(state.own) != 0 {
		return nil
	}
	own := &watch{path: state.path, tell: e.changed}
	if e.attach(nil, own) != nil {
		return nil
	}
	return e.session.watches.ask(e.session, own)
}

// changed is told by the watch on the node. It must not block.
func (l *lease) changed(deleted bool) {
	l.mu.Lock()
	sent := l.sent
	l.mu.Unlock()
	if deleted && !sent { // else somebody wrote to it, or the session is over
		l.entry.session.backend.life.Go(func(context.Context) { l.Lose() })
	}
}

// Release implements [driver.Lease]. What has no answer goes on in the background,
// whether Release is called again or not: the session may outlast the Locker's
// patience, and with it the node.
func (l *lease) Release(ctx context.Context, _ uint64) error {
	e := l.entry
	l.mu.Lock()
	over, again, released := l.Deadline().Left() <= 0, l.sent, l.released
	l.sent = true
	l.mu.Unlock()
	switch {
	case released:
		return driver.ErrLost
	case over && !again:
		e.owe()
		return driver.ErrLost
	}
	e.end()
	deleted, err := e.erase(ctx)
	if err != nil {
		e.owe()
		return explained(err, "release a lock", e.state().path)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.released = true
	if !deleted && !again { // else by an attempt that had no answer
		return driver.ErrLost
	}
	return nil
}
