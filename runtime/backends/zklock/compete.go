package zklock

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockgen/lockgen/runtime/backends/zklock/internal/client"
	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/record"
)

const (
	// looks bounds how often those before us may leave while we look, and how often
	// our node or its directory may vanish, as an empty container does.
	looks = 16
	// fresh is how long it is taken for granted that the node before ours, which we
	// watch, is still there. A waiter asks once a second.
	fresh = 800 * time.Millisecond
)

// listing is what became of a request for the nodes in a directory; nil if none
// was made.
type listing <-chan client.Answer

// compete makes e's node if there is none, and takes the lock if it is first.
func (e *entry) compete(ctx context.Context, a *driver.Acquisition, sent driver.Instant) (*lease, error) {
	l, err := e.stand(ctx, a.ID)
	if err != nil {
		return nil, err
	}
	first, err := e.look(ctx, l)
	switch {
	case e.session.over() != nil:
		return nil, errGone
	case err != nil:
		return nil, err
	case !first:
		return nil, &driver.HeldError{}
	}
	if a.NoRenewal { // it has its whole length, whatever the session's proof
		if err := e.session.Await(ctx, a.TTL); err != nil {
			return nil, err
		}
		sent = driver.Now()
	}
	return e.grant(a, sent)
}

// grant makes the lease of e, for a.
func (e *entry) grant(a *driver.Acquisition, sent driver.Instant) (*lease, error) {
	es := e.entries
	es.mu.Lock()
	defer es.mu.Unlock()
	first, err := firstToken(e.czxid)
	switch {
	case err != nil:
		return nil, err
	case e.phase != queued:
		return nil, e.why()
	}
	l := &lease{entry: e, first: first, n: min(a.Tokens, tokensPerNode), Lease: e.session.NewLease(a, sent.Add(a.TTL))}
	e.unqueueLocked()
	e.phase, e.lease, e.using = leased, l, false
	delete(es.refused, e.key)
	return l, nil
}

// stand sees to it that the node stands. A new node's creation has the listing sent
// right behind it, which saves a round trip: the server deals with the two in their
// order.
func (e *entry) stand(ctx context.Context, id string) (l listing, err error) {
	for range looks {
		switch state := e.state(); {
		case state.phase != queued || e.session.over() != nil:
			return nil, e.why()
		case state.node == standing:
			return l, nil
		case state.node == creating: // since an attempt that ended first
			select {
			case <-state.created:
			case <-ctx.Done():
				err = fmt.Errorf("%w: %w", client.ErrNoAnswer, ctx.Err())
			}
		case state.node == unknown:
			l, err = nil, e.find(ctx)
		default:
			l, err = e.create(ctx, id)
			if isNoNode(err) {
				err = e.session.makeDirectory(ctx, e.dir)
			}
		}
		if err != nil && (ctx.Err() != nil || !unanswered(err)) {
			return nil, err
		}
	}
	return nil, zk.ErrNoNode
}

// why says why e is not queued.
func (e *entry) why() error {
	if e.session.over() != nil {
		return errGone
	}
	return errUndone
}

// create asks for the node, and for who is in the directory then. What comes of the
// first is noted also when ctx ends before.
func (e *entry) create(ctx context.Context, id string) (listing, error) {
	es, s := e.entries, e.session
	if err := s.await(ctx); err != nil {
		return nil, err
	}
	es.mu.Lock()
	if e.phase != queued {
		es.mu.Unlock()
		return nil, e.why()
	}
	e.node, e.created = creating, make(chan struct{})
	es.mu.Unlock()
	created, children := make(chan client.Answer, 1), make(chan client.Answer, 1)
	made := func(a client.Answer) {
		e.made(a)
		created <- a
	}
	r := client.Create(e.dir+"/"+e.name, []byte(id), s.backend.acl, zk.FlagEphemeralSequential)
	if err := s.send(r, made); err != nil {
		made(client.Answer{Err: err})
	}
	if err := s.send(client.Children(e.dir), func(a client.Answer) { children <- a }); err != nil {
		children <- client.Answer{Err: err}
	}
	_, err := await(ctx, created)
	return children, err
}

// made notes the outcome of create.
func (e *entry) made(a client.Answer) {
	e.entries.mu.Lock()
	defer e.entries.mu.Unlock()
	switch {
	case a.Err == nil:
		e.standLocked(a.Path, a.Czxid)
	case unanswered(a.Err):
		e.node = unknown
	default: // there is no node of what was refused, or not sent
		e.node = absent
	}
	close(e.created)
}

// standLocked notes that the node is there.
func (e *entry) standLocked(at string, czxid int64) {
	e.node, e.path, e.czxid = standing, at, czxid
	e.seq, _ = sequence(path.Base(at))
}

// find looks for the node after the reply to its creation was lost. That it is
// conclusive, erase says.
func (e *entry) find(ctx context.Context) error {
	s := e.session
	if _, err := s.do(ctx, client.Delete(s.backend.probe, client.AnyVersion)); !committed(err) {
		return err
	}
	all, err := s.do(ctx, client.Children(e.dir))
	at := ""
	var node client.Answer
	for _, name := range all.Children {
		if err == nil && strings.HasPrefix(name, e.name) {
			at = path.Join(e.dir, name)
			node, err = s.do(ctx, client.Exists(at))
		}
	}
	if err != nil && !isNoNode(err) {
		return err
	}
	e.entries.mu.Lock()
	defer e.entries.mu.Unlock()
	e.node = absent
	if at != "" && err == nil {
		e.standLocked(at, node.Czxid)
	}
	return nil
}

// look finds out whether the node is first in the queue. If it is not, and e
// waits, the end of the node before it will be told to the subscriber.
func (e *entry) look(ctx context.Context, l listing) (first bool, err error) {
	for range looks {
		if e.inherits() {
			return true, nil
		}
		before, err := e.predecessor(ctx, l)
		l = nil
		if err == nil && before == "" {
			return true, nil
		}
		if err == nil {
			err = e.watch(ctx, before)
		}
		switch {
		case isNoNode(err): // it has just left
		case err == nil, errors.Is(err, zk.ErrNoAuth): // one that may not be read: we list once a second
			return false, nil
		case !unanswered(err) || ctx.Err() != nil || e.session.over() != nil:
			return false, err
		}
	}
	return false, nil // held, by one after the other
}

// predecessor returns the path of the node before ours, "" if ours is the first. It
// lists the nodes unless it knows: l is such a list.
func (e *entry) predecessor(ctx context.Context, l listing) (at string, err error) {
	state := e.state()
	if l == nil && e.session.watches.setOn(state.next) != 0 {
		return state.next.path, nil
	}
	e.ahead = 0
	var a client.Answer
	if l != nil {
		a, err = await(ctx, l)
	}
	if l == nil || unanswered(err) || errors.Is(err, errNotSent) {
		a, err = e.session.do(ctx, client.Children(e.dir))
	}
	name, ahead, there := predecessor(a.Children, state.seq, path.Base(state.path))
	other := foreign(a.Children, func(seq int32) bool { return before(seq, state.seq) })
	switch {
	case isNoNode(err), err == nil && !there:
		return "", errGone
	case err == nil && a.Data > 0:
		return "", errHoldsData(e.dir, a.Data)
	case err == nil && recordBefore(a.Children, state.seq):
		return "", e.besideRecord(ctx, a.Children)
	case err == nil && other != "":
		return "", record.Beside(other, record.Mutex)
	case err != nil || ahead == 0:
		return "", err
	}
	e.ahead = ahead
	return path.Join(e.dir, name), nil
}

// besideRecord says of which kind the record among children is.
func (e *entry) besideRecord(ctx context.Context, children []string) error {
	at, _ := recordIn(e.dir, children)
	node, err := e.session.do(ctx, client.Get(at))
	noun := record.Noun(string(node.Value))
	if err != nil || noun == "" {
		noun = "another kind of lock"
	}
	return record.Beside(noun, record.Mutex)
}

// inherits reports whether e is known to be first without a question: only one
// was before it, that one has gone, and e's node is there. None comes before it.
//
// The last of the three is so if the same connection has said that the node is
// watched, and that the other has gone, and nothing else of the node: a server
// tells of changes in their order. It does not once the connection was lost: what
// happened meanwhile is told in no order.
func (e *entry) inherits() bool {
	ws, state := &e.session.watches, e.state()
	by := ws.goneBy(state.next)
	return e.ahead == 1 && by != 0 && ws.setOn(state.own) == by
}

// watch has the end of the node at before told to e's subscriber, if e waits. Once a
// second it asks again, in case it is not told. If no other is before ours, it has
// ours watched too, which spares us a question when that one goes, and so the lock a
// round trip on its way to us: see inherits.
func (e *entry) watch(ctx context.Context, before string) error {
	s, state := e.session, e.state()
	if !state.waits || s.watches.setOn(state.next) != 0 && time.Since(e.seen) < fresh {
		return nil
	}
	if err := s.await(ctx); err != nil {
		return err
	}
	var ours <-chan client.Answer
	if e.ahead == 1 && s.watches.setOn(state.own) != s.client.Link() {
		own := &watch{path: state.path, tell: e.changed}
		if err := e.attach(nil, own); err != nil {
			return err
		}
		ours = s.watches.ask(s, own)
	}
	next := &watch{path: before, tell: func(bool) { e.entries.hub.Notify(e.key) }}
	if err := e.attach(next, nil); err != nil {
		return err
	}
	_, err := await(ctx, s.watches.ask(s, next))
	if ours != nil && (err == nil || isNoNode(err)) {
		if _, other := await(ctx, ours); isNoNode(other) {
			return errGone
		}
	}
	if err == nil {
		e.seen = time.Now()
	}
	return err
}

// attach makes next and own, if they are not nil, the watches of e, which end with it.
func (e *entry) attach(next, own *watch) error {
	e.entries.mu.Lock()
	defer e.entries.mu.Unlock()
	if e.phase > leased {
		return e.why()
	}
	if next != nil {
		e.session.watches.remove(e.next)
		e.next = next
	}
	if own != nil {
		e.session.watches.remove(e.own)
		e.own = own
	}
	return nil
}

// changed is told by the watch on our own node.
func (e *entry) changed(deleted bool) {
	e.entries.mu.Lock()
	l := e.lease
	e.entries.mu.Unlock()
	if l != nil {
		l.changed(deleted)
	} else {
		e.entries.hub.Notify(e.key)
	}
}
