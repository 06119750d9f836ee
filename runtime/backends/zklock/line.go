package zklock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockgen/lockgen/runtime/driver"
)

// spot is where a Locker waits: it has one place in the line for a key, which
// serves whichever of its acquisitions competes at the moment.
type spot struct{ locker, key string }

func spotOf(a *driver.Acquisition) spot {
	locker, _, _ := strings.Cut(a.ID, ":")
	return spot{locker, a.Key}
}

// place is one node in the line for a key, from before it is made until it is
// surely gone.
type place struct {
	session *session
	spot    spot
	dir     string
	name    string // its protection; the server adds the sequence number

	// The rest is guarded by the backend's mutex, except what only the one that
	// uses the place looks at.
	id      string // of the acquisition that uses it, or did last
	using   bool   // an Acquire is under way
	wanted  string // the last acquisition that used it and waits; "" since its place was given up
	doomed  bool   // it is to be deleted, for nobody
	state   state
	pending chan struct{} // while its creation is under way: closed when that has ended
	path    string
	seq     int32
	lease   *lease        // what it was granted for
	cleared chan struct{} // once doomed: closed when the node is gone
	sees    [sights]*watcher

	// Of the user.
	rank   int            // in the line, at worst: 1 is the first, and 0 that it is to be asked
	seen   time.Time      // when the one before it was there last
	lonely bool           // nobody was there when it was made
	czxid  int64          // 0 while unknown
	early  <-chan listing // sent behind the creation of the node
}

type state int

const (
	void     state = iota // no node: none was asked for, or it was refused
	unknown               // the reply to its creation was lost
	standing              // the node was made
)

var (
	// errGone says that the node is there no more, or its session.
	errGone = errors.New("the node of this acquisition is gone")
	// errUndone says that Undo came before the lock.
	errUndone = errors.New("the acquisition was undone already")
)

// enter returns the session for leases of ttl, with its gate passed.
func (b *Backend) enter(ctx context.Context, ttl time.Duration) (*session, error) {
	s, err := b.session(ctx, ttl)
	if err != nil {
		return nil, err
	}
	select {
	case s.gate <- struct{}{}:
		return s, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%w, %d acquires are under way: %w", errNotSent, acquiresAtOnce, ctx.Err())
	}
}

// stand returns the place that a is to use, or the lease that it has already.
func (b *Backend) stand(s *session, a *driver.Acquisition, dir string) (*place, *lease) {
	b.mu.Lock()
	defer b.mu.Unlock()
	sp := spotOf(a)
	p := b.attempts[a.ID]
	if p != nil && p.lease != nil && p.lease.Deadline().Left() > 0 {
		return p, p.lease
	}
	if p == nil {
		p = b.line[sp]
	}
	if p != nil && !p.serves(a) {
		if b.line[sp] == p && !p.using {
			delete(b.line, sp)
			p.doom()
		}
		p = nil
	}
	if p == nil {
		p = &place{session: s, spot: sp, dir: dir, name: protection(a.ID), id: a.ID}
		b.named[p.name] = p
		s.use(1)
		if a.Queue && b.line[sp] == nil {
			b.line[sp] = p
		}
	}
	if b.attempts[p.id] == p {
		delete(b.attempts, p.id)
	}
	p.id, p.using = a.ID, true
	if a.Queue {
		p.wanted = a.ID
	}
	b.attempts[a.ID] = p
	return p, nil
}

// serves reports whether a may use p, which its Locker had before.
func (p *place) serves(a *driver.Acquisition) bool {
	lease := p.session.span.lease
	return !p.using && !p.doomed && p.lease == nil && p.session.over() == nil && lease >= a.TTL && lease < 2*a.TTL+time.Second
}

// left ends the use of p, and reports whether it stays in the line, as it may, and
// whether there may be a node of it. If it does not stay nobody else gets it.
func (b *Backend) left(p *place, may bool) (stays, exists bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p.using = false
	exists = p.state != void || p.pending != nil
	stays = may && exists && b.line[p.spot] == p && !p.doomed && p.wanted != ""
	switch {
	case !exists:
		p.vanish()
	case !stays && b.line[p.spot] == p:
		delete(b.line, p.spot)
	}
	return stays, exists
}

// stays reports whether p is to stay in the line if it is not first.
func (p *place) stays() bool {
	b := p.session.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.line[p.spot] == p && !p.doomed
}

// unsettled reports whether the reply to the node's creation is still missing.
func (p *place) unsettled() bool {
	b := p.session.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	return p.state == unknown || p.pending != nil
}

// isUndone reports whether somebody has ended p under the one that uses it.
func (b *Backend) isUndone(p *place) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return p.doomed
}

// drop forgets p, whose node is not there, or soon no more.
func (b *Backend) drop(p *place) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p.using = false
	p.vanish()
}

// vanish is drop with the backend's mutex held.
func (p *place) vanish() {
	if p.cleared == nil {
		p.cleared = make(chan struct{})
	}
	p.forget()
}

// forget ends p. The backend's mutex is held.
func (p *place) forget() {
	b := p.session.backend
	if closed(p.cleared) {
		return
	}
	p.doomed = true
	close(p.cleared)
	if b.attempts[p.id] == p {
		delete(b.attempts, p.id)
	}
	if b.named[p.name] == p {
		delete(b.named, p.name)
	}
	if b.line[p.spot] == p {
		delete(b.line, p.spot)
	}
	p.drop(onNext, onSecond, onOwn)
	p.session.use(-1)
}

// doom has p's node deleted in the background, until that is done or the session
// is over, which deletes it too. The backend's mutex is held.
func (p *place) doom() {
	if p.cleared != nil {
		return
	}
	p.doomed, p.cleared = true, make(chan struct{})
	if p.session.over() != nil {
		p.forget()
		return
	}
	p.session.backend.work.Go(p.clear)
}

// remove dooms p and waits until it is gone.
func (p *place) remove(ctx context.Context) error {
	b := p.session.backend
	b.mu.Lock()
	p.doom()
	b.mu.Unlock()
	select {
	case <-p.cleared:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// clear deletes p's node. Where the reply to its creation was lost, that may not
// have happened yet, but what this session asks for now comes after it:
//
//   - While the request is under way, clear waits for its end.
//   - If the connection ended first, the session has since come back over another
//     one; whatever was sent over the old one is in the ensemble's hands, or was
//     dropped with its socket. The server that had it passes a session's requests
//     on in their order. If another server has the session now, the leader has
//     noted it as the session's owner before the new connection was confirmed, and
//     refuses what the old owner still passes on (SessionMoved). So once a write is
//     answered, which a majority has taken, the creation has happened, and the server
//     that is asked for the children knows it, or it never will. (A sync would not do:
//     a leader that was deposed without noticing answers it, and may have let us in.)
//   - If the session is over, all its nodes are deleted, and nothing is created
//     for it any more.
func (p *place) clear() {
	s, b := p.session, p.session.backend
	for s.over() == nil {
		b.mu.Lock()
		pending := p.pending
		b.mu.Unlock()
		if pending != nil {
			select {
			case <-pending:
			case <-s.ctx.Done():
				continue
			}
		}
		err := p.erase(s.ctx)
		if err == nil || s.over() == nil && answered(err) && !pause(s.ctx, err) {
			break
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	p.forget()
}

// pause waits before a deletion is tried again.
func pause(ctx context.Context, err error) bool {
	d := 20 * time.Millisecond
	if !unanswered(err) && !errors.Is(err, errNotSent) {
		d = time.Second // the server has refused it; it may yet be allowed to us
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// erase deletes p's node, which it finds by its name if need be.
func (p *place) erase(ctx context.Context) error {
	b := p.session.backend
	b.mu.Lock()
	state := p.state
	b.mu.Unlock()
	if state == unknown {
		if err := p.find(ctx); err != nil {
			return err
		}
	}
	b.mu.Lock()
	path, state := p.path, p.state
	b.mu.Unlock()
	if state == void {
		return nil
	}
	err := p.session.call(ctx, write, func(c *zk.Conn) error { return c.Delete(path, -1) })
	if isNoNode(err) {
		return nil
	}
	return err
}

// leave deletes p's node at once, or in the background when ctx ends.
func (p *place) leave(ctx context.Context) error {
	b := p.session.backend
	b.mu.Lock()
	direct := p.state == standing && p.cleared == nil
	b.mu.Unlock()
	if !direct {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		return p.remove(ctx)
	}
	err := p.erase(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		p.doom()
		return err
	}
	p.vanish()
	return nil
}
