package zklock

import (
	"context"
	"errors"
	"path"
	"time"

	"github.com/go-zookeeper/zk"
)

// sight is whom a place that waits has a watch on.
type sight int

const (
	// onNext is the one before us, whose end we wait for.
	onNext sight = iota
	// onSecond is the one before that. It is the holder, as a rule, when it goes:
	// then we look who is left, in the time in which the one before us has the lock.
	onSecond
	// onOwn is ourselves, once nobody but the one before us is before us. That
	// spares us the question whether we are first, and so the lock a round trip on
	// its way to us. See inherits.
	onOwn

	sights
)

// inherits reports whether p is known to be first without a question: only one
// was before it, that one has gone, and p's node is there. None comes before it.
//
// The last of the three is so if the node is watched over the connection that
// there is, and nothing was told of it. A server tells a session of changes in
// their order: what had become of our node before the other's end was told before
// that. Once the connection is lost the watch counts for nothing, since what
// happened in the meantime is told in no order.
func (p *place) inherits() bool {
	ws := &p.session.watches
	if p.rank != 2 || p.czxid == 0 || !p.on(onNext).hasGone() {
		return false
	}
	// In this order: what is told from here on is of what came after the end.
	up := ws.via(p.on(onOwn))
	return up != nil && up == p.session.isUp() && closed(up)
}

// watching reports whether those before us are known to be as they were when we
// looked, and will tell when they are not.
func (p *place) watching(ctx context.Context) (bool, error) {
	ws := &p.session.watches
	next, second := p.on(onNext), p.on(onSecond)
	if next == nil {
		p.rank = 0
		return false, nil
	}
	passed := second != nil && !ws.has(second)
	if passed {
		p.told(second)
		p.unwatch(onSecond)
	}
	if ws.has(next) {
		if passed || p.rank == 0 || time.Since(p.seen) < fresh {
			return !passed && p.rank != 0, nil
		}
		there, _, err := p.stat(ctx, next.path)
		if err != nil || there {
			p.seen = time.Now()
			return there, err
		}
		next.gone.Store(true)
	}
	p.told(next)
	p.unwatch(onNext, onSecond)
	return false, nil
}

// told notes that w has told of one before us. It may have been written to, and
// be there still: then all is to be asked.
func (p *place) told(w *watcher) {
	if p.rank > 1 && w.hasGone() {
		p.rank--
	} else {
		p.rank = 0
	}
}

// watch has the end of next told to the subscription. One who stays in the line
// sees also to what spares it a question then: a watch on itself, if only next is
// before it, and else one on second. Without these it asks.
func (p *place) watch(ctx context.Context, next, second string) error {
	p.keep(next, second)
	ahead := make(chan error, 1)
	switch {
	case !p.stays():
		ahead <- nil
	case p.rank == 2:
		go func() { ahead <- p.attend(ctx) }() // beside the other, to save the time
	case second != "":
		go func() {
			_, err := p.follow(ctx, onSecond, second)
			ahead <- err
		}()
	default:
		ahead <- nil
	}
	_, err := p.follow(ctx, onNext, next)
	if other := <-ahead; err == nil && (isNoNode(other) || errors.Is(other, errGone)) {
		err = other
	}
	if err == nil {
		p.seen = time.Now()
	}
	return err
}

// keep ends the watches on all but next and second. Those that are watched are
// those by whom our rank was counted: the end of one that had gone before would
// count a second time.
func (p *place) keep(next, second string) {
	b := p.session.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	for s, name := range map[sight]string{onNext: next, onSecond: second} {
		if w := p.sees[s]; w != nil && w.path != path.Join(p.dir, name) {
			p.drop(s)
		}
	}
}

// attend has the end of our own node told to us. It is then known which
// transaction has made the node.
func (p *place) attend(ctx context.Context) error {
	czxid, err := p.follow(ctx, onOwn, path.Base(p.path))
	switch {
	case isNoNode(err):
		return errGone
	case err != nil || p.czxid != 0:
		return err
	case czxid == 0: // another of this session has had the node watched
		return p.identify(ctx)
	}
	p.czxid = czxid
	return nil
}

// follow watches the node of this name, unless it is watched already. One that has
// gone is noted as such: the error is zk.ErrNoNode. For czxid see session.arm.
func (p *place) follow(ctx context.Context, on sight, name string) (czxid int64, err error) {
	s, b := p.session, p.session.backend
	w := p.on(on)
	at := path.Join(p.dir, name)
	if w != nil && w.path == at {
		switch {
		case w.hasGone():
			return 0, zk.ErrNoNode
		case s.watches.has(w):
			return 0, nil
		}
	}
	w = &watcher{path: at, tell: func(bool) { b.notify(p.spot) }}
	if on == onOwn {
		w.tell = p.struck
	}
	czxid, err = s.arm(ctx, w)
	if err != nil && !isNoNode(err) {
		return 0, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if p.doomed {
		s.watches.remove(w)
		return 0, errUndone
	}
	p.drop(on)
	p.sees[on] = w
	return czxid, err
}

// struck is told by the watch on our own node.
func (p *place) struck(deleted bool) {
	if l := p.granted(); l != nil {
		l.changed(deleted)
	}
}

// on returns one of p's watches, or nil.
func (p *place) on(s sight) *watcher {
	b := p.session.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	return p.sees[s]
}

// unwatch ends these watches of one who waits.
func (p *place) unwatch(all ...sight) {
	b := p.session.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	p.drop(all...)
}

// drop is unwatch with the backend's mutex held.
func (p *place) drop(all ...sight) {
	for _, s := range all {
		if w := p.sees[s]; w != nil {
			p.session.watches.remove(w)
			p.sees[s] = nil
		}
	}
}
