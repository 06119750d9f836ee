package zklock

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockgen/lockgen/runtime/driver"
)

// lease is a place that was first when it was looked at. It is over by its own
// deadline, which renewals move as far as the session's reaches; the session
// then deletes its node.
type lease struct {
	place    *place
	first, n uint64
	until    atomic.Pointer[driver.Instant]

	mu       sync.Mutex
	lost     bool // it is over, by its deadline, its session's end or somebody's deletion
	released bool // a release was answered
	sent     bool // a release was sent
	guarding bool // its watch is being set
	own      *watcher
	look     func() // tells the Locker; nil until NotifyLoss
}

// grant makes the lease of p, for a.
func (p *place) grant(a *driver.Acquisition, sent driver.Instant) (*lease, error) {
	first, err := firstToken(p.czxid)
	if err != nil {
		return nil, err
	}
	s, b := p.session, p.session.backend
	l := &lease{place: p, first: first, n: min(a.Tokens, tokensPerNode)}
	until := earlier(sent.Add(a.TTL), s.deadline())
	l.until.Store(&until)
	b.mu.Lock()
	defer b.mu.Unlock()
	if p.doomed {
		return nil, errUndone
	}
	if !s.lend(l) {
		return nil, errGone
	}
	p.lease, p.using = l, false
	l.mu.Lock()
	l.own, p.sees[onOwn] = p.sees[onOwn], nil // it goes on with that
	l.mu.Unlock()
	p.drop(onNext, onSecond)
	if b.line[p.spot] == p {
		delete(b.line, p.spot)
	}
	return l, nil
}

func (p *place) granted() *lease {
	b := p.session.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	return p.lease
}

// lend notes a lease of the session, unless the session is over.
func (s *session) lend(l *lease) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return false
	}
	s.leases[l] = true
	return true
}

// Deadline implements [driver.Lease].
func (l *lease) Deadline() driver.Instant { return *l.until.Load() }

// Tokens implements [driver.Lease].
func (l *lease) Tokens() (first, n uint64) { return l.first, l.n }

// Renew implements [driver.Lease]. It asks for nothing where the session is known
// to last long enough, except for the first time, when it sets a watch on the
// node.
func (l *lease) Renew(ctx context.Context, ttl time.Duration) error {
	if err := l.guard(ctx); err != nil {
		return err
	}
	s := l.place.session
	asked := driver.Now()
	switch err := s.cover(ctx, ttl-ttl/8); {
	case errors.Is(err, errGone):
		return driver.ErrLost
	case err != nil:
		return err
	}
	return l.prolong(earlier(asked.Add(ttl), s.deadline()))
}

// renewedNow is Renew where that needs nothing to be waited for. It reports also
// whether the node is watched, or about to be.
func (l *lease) renewedNow(ttl time.Duration) (renewed, watched bool) {
	s := l.place.session
	l.mu.Lock()
	watched = l.guarding || l.own != nil && s.watches.has(l.own)
	l.mu.Unlock()
	asked := driver.Now()
	deadline := s.deadline()
	return deadline.Left() >= ttl-ttl/8 && l.prolong(earlier(asked.Add(ttl), deadline)) == nil, watched
}

// prolong moves the deadline to until, if that is later.
func (l *lease) prolong(until driver.Instant) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	left := l.Deadline().Left()
	if l.lost || l.sent || left <= 0 {
		return driver.ErrLost
	}
	if until.Left() > left {
		l.until.Store(&until)
	}
	return nil
}

// shorten moves the deadline to until, if that is earlier.
func (l *lease) shorten(until driver.Instant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	until = earlier(until, l.Deadline())
	l.until.Store(&until)
}

// guard has the server tell if somebody deletes the node. A short hold, which is
// never renewed, does without.
func (l *lease) guard(ctx context.Context) error {
	s := l.place.session
	l.mu.Lock()
	if l.own == nil {
		l.own = &watcher{path: l.place.path, tell: l.changed}
	}
	own, lost := l.own, l.lost || l.sent
	l.guarding = true
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.guarding = false
	}()
	if lost || s.over() != nil {
		return driver.ErrLost
	}
	if s.watches.has(own) {
		return nil
	}
	_, err := s.arm(ctx, own)
	if isNoNode(err) {
		l.end()
		return driver.ErrLost
	}
	return err
}

// changed is told by the watch on the node. It must not block.
func (l *lease) changed(deleted bool) {
	if !deleted {
		return // somebody wrote to it, or the session is over; the next renewal sees
	}
	l.mu.Lock()
	sent := l.sent
	l.mu.Unlock()
	if sent || !l.place.session.begin() {
		return
	}
	l.end()
	go func() {
		defer l.place.session.work.Done()
		l.tell()
	}()
}

// end makes the lease one that is lost.
func (l *lease) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost = true
	l.until.Store(&driver.Instant{})
}

// tell has the Locker look at the lease.
func (l *lease) tell() {
	l.mu.Lock()
	look := l.look
	l.mu.Unlock()
	if look != nil {
		look()
	}
}

// NotifyLoss implements [driver.LossNotifier].
func (l *lease) NotifyLoss(look func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.look = look
}

// lapse ends a lease whose deadline has passed, and deletes its node: nobody
// else would, as long as the session lasts.
func (l *lease) lapse() {
	l.mu.Lock()
	if l.sent || l.Deadline().Left() > 0 {
		l.mu.Unlock()
		return
	}
	l.lost = true
	l.mu.Unlock()
	l.part()
	b := l.place.session.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	l.place.doom()
}

// part ends the session's interest in the lease.
func (l *lease) part() {
	s := l.place.session
	s.mu.Lock()
	delete(s.leases, l)
	s.mu.Unlock()
	l.mu.Lock()
	own := l.own
	l.mu.Unlock()
	if own != nil {
		s.watches.remove(own)
	}
}

// Release implements [driver.Lease].
func (l *lease) Release(ctx context.Context, _ uint64) error {
	l.mu.Lock()
	lost, again, released := l.lost || !l.sent && l.Deadline().Left() <= 0, l.sent, l.released
	l.sent = true
	l.mu.Unlock()
	l.part()
	p := l.place
	switch {
	case released:
		return driver.ErrLost
	case lost || p.session.over() != nil && !again:
		p.abandon()
		return driver.ErrLost
	}
	err := p.release(ctx)
	switch {
	case isNoNode(err) && !again:
		err = driver.ErrLost
	case isNoNode(err):
		err = nil // by an attempt whose reply was lost
	case err != nil:
		return explained(err, "release a lock", p.path)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.released = true
	return err
}

// abandon has the node of a lease that is over deleted, by whom it may concern.
func (p *place) abandon() {
	b := p.session.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	p.doom()
}

// release deletes the node. What has no answer goes on in the background, as
// doom says, whether release is called again or not: the session may outlast
// the Locker's patience.
func (p *place) release(ctx context.Context) error {
	b := p.session.backend
	b.mu.Lock()
	doomed := p.cleared != nil
	b.mu.Unlock()
	if doomed {
		return p.remove(ctx)
	}
	err := p.session.call(ctx, write, func(c *zk.Conn) error { return c.Delete(p.path, -1) })
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil && !isNoNode(err) {
		p.doom()
		return err
	}
	p.vanish()
	if err == nil && p.lonely {
		b.becalm(p.dir, p.seq+1)
	}
	return err
}

// becalm notes that nobody was in dir when the last of its nodes was deleted,
// and which number the next one will have if nobody comes in between. That
// spares whoever is next the question for its own czxid.
func (b *Backend) becalm(dir string, next int32) {
	if len(b.calm) >= calmDirectories {
		clear(b.calm)
	}
	b.calm[dir] = next
}

// calmDirectories bounds the memory for them.
const calmDirectories = 4096
