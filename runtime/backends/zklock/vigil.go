package zklock

import (
	"context"
	"path"
	"time"
)

// vigil spares a place the question whether it is first now, and so the lock a
// round trip on its way to the next in line. Two nodes are watched over one
// connection: its own, and that of the only one before it. A server tells a
// session of changes in their order: when it has told that the one before has
// gone, and not that ours has, then ours is there, and first.
//
// It counts for nothing once that connection is lost. What happened in the
// meantime is told in no order.
type vigil struct {
	up   <-chan struct{} // the connection, as session.isUp has it
	own  *watcher
	left bool // the one before us has gone
}

// watch sets a watch on the one before us and, where it is the only one, on
// ourselves.
func (p *place) watch(ctx context.Context, name string) error {
	s, b := p.session, p.session.backend
	v := &vigil{up: s.isUp()}
	w := &watcher{path: path.Join(p.dir, name), tell: func(deleted bool) { p.freed(v, deleted) }}
	keeps := make(chan bool, 1)
	if p.lone && p.czxid != 0 {
		v.own = &watcher{path: p.path, tell: p.struck}
		go func() { keeps <- s.arm(ctx, v.own) == nil }() // beside the other, to save the time
	} else {
		keeps <- false
	}
	err := s.arm(ctx, w)
	kept := <-keeps
	b.mu.Lock()
	defer b.mu.Unlock()
	if err == nil && p.doomed {
		s.watches.remove(w)
		err = errUndone
	}
	if err != nil {
		if kept {
			s.watches.remove(v.own)
		}
		return err
	}
	p.next, p.seen = w, time.Now()
	if kept {
		p.vigil = v
	}
	return nil
}

// freed is told by the watch on the one before us.
func (p *place) freed(v *vigil, deleted bool) {
	b := p.session.backend
	b.mu.Lock()
	v.left = deleted
	b.mu.Unlock()
	b.notify(p.spot)
}

// struck is told by the watch on our own node.
func (p *place) struck(deleted bool) {
	if l := p.granted(); l != nil {
		l.changed(deleted)
	}
}

// inherits reports whether the vigil has seen that p is first.
func (p *place) inherits() bool {
	s, b := p.session, p.session.backend
	up := s.isUp()
	b.mu.Lock()
	defer b.mu.Unlock()
	v := p.vigil
	return v != nil && v.left && s.watches.has(v.own) && v.up == up && closed(up)
}

// unwatch ends the watches of one who waits. The backend's mutex is held.
func (p *place) unwatch() {
	if p.next != nil {
		p.session.watches.remove(p.next)
		p.next = nil
	}
	if p.vigil != nil {
		if p.vigil.own != nil {
			p.session.watches.remove(p.vigil.own)
		}
		p.vigil = nil
	}
}

// bequeath returns the watch on p's node, for its lease to go on with, or nil.
// The backend's mutex is held.
func (p *place) bequeath() *watcher {
	if p.vigil == nil {
		return nil
	}
	own := p.vigil.own
	p.vigil.own = nil
	return own
}
