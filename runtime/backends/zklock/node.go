package zklock

import (
	"context"
	"errors"
	"path"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/go-zookeeper/zk"

	"github.com/lockgen/lockgen/runtime/backends/zklock/internal/client"
	"github.com/lockgen/lockgen/runtime/internal/record"
)

// node is a node in the queue of a key, from before it is asked for until it is surely
// gone. An entry has it in its turn, then a lease.
type node struct {
	session *session
	dir     string
	prefix  string // of the name; the server adds the sequence number
	notify  func() // who waits by it is to look again
	lease   atomic.Pointer[lease]

	path  string // "" is that it may be there or not
	czxid int64

	before *client.Watch                // on the node before this one
	ahead  int                          // how many were before this one when they were listed
	own    atomic.Pointer[client.Watch] // on this one
}

// create asks for the node, and for who is in the directory then.
func (n *node) create(ctx context.Context, data string) (listed <-chan client.Answer, err error) {
	r := client.Create(n.dir+"/"+n.prefix, []byte(data), n.session.backend.options.ACL, zk.FlagEphemeralSequential)
	a, listed, err := n.session.createAndList(ctx, r, n.dir)
	n.path, n.czxid = a.Path, a.Czxid // none without an answer
	return listed, err
}

// find looks for the node after there was no answer to its creation, and leaves its path
// as it is where there is none. The write makes that conclusive: see DESIGN.md. A node of
// the same name may be left of a session that has ended here, and not yet at the servers.
func (n *node) find(ctx context.Context) error {
	s := n.session
	if _, err := s.do(ctx, client.Delete(s.backend.probe, client.AnyVersion)); !committed(err) {
		return err
	}
	all, err := s.do(ctx, client.Children(n.dir))
	if err != nil && !isNoNode(err) {
		return err
	}
	id, _ := s.client.Session()
	for _, name := range all.Children {
		if !strings.HasPrefix(name, n.prefix) {
			continue
		}
		at := path.Join(n.dir, name)
		switch a, err := s.do(ctx, client.Exists(at)); {
		case err == nil && a.EphemeralOwner == id:
			n.path, n.czxid = at, a.Czxid
		case err != nil && !isNoNode(err):
			return err
		}
	}
	return nil
}

// remove deletes the node, and reports whether it was there, or may have been.
func (n *node) remove(ctx context.Context) (removed bool, err error) {
	for again := true; again; again = unanswered(err) && ctx.Err() == nil && n.session.over() == nil {
		if err = nil; n.path == "" {
			err = n.find(ctx)
		}
		if err == nil && n.path != "" {
			_, err = n.session.do(ctx, client.Delete(n.path, client.AnyVersion))
			removed = removed || err == nil || unanswered(err)
		}
	}
	if isNoNode(err) || n.session.over() != nil {
		err = nil
	}
	return removed, err
}

// forget notes that the node is not there, nor will be.
func (n *node) forget() {
	n.session.client.Unwatch(n.before)
	n.session.client.Unwatch(n.own.Load())
	n.session.Drop()
}

// isFirst finds out whether the node is first in the queue. If it is not, and it waits,
// the end of the node before it will be told. listed is the answer to who is in the
// directory, if that was asked.
func (n *node) isFirst(ctx context.Context, listed <-chan client.Answer, waits bool) (bool, error) {
	if n.inherits() {
		return true, nil
	}
	at := ""
	if waits && n.before.Is(client.Standing) {
		at = n.before.Path // asked again, in case we are not told
	} else {
		var err error
		if at, err = n.predecessor(ctx, listed); !waits || err != nil || at == "" {
			return err == nil && at == "", err
		}
	}
	err := n.watch(ctx, at)
	switch {
	case isNoNode(err): // it has just left
		return n.isFirst(ctx, nil, waits)
	case errors.Is(err, zk.ErrNoAuth): // one that may not be read: we list once a second
		return false, nil
	}
	return false, err
}

// inherits reports whether the node is known to be first without a question: only one was
// before it, that one has gone, and the watch on the node itself has told nothing. A server
// tells of changes in their order, and both watches end with their connection.
func (n *node) inherits() bool {
	return n.ahead == 1 && n.before.Is(client.Deleted) && n.own.Load().Is(client.Standing)
}

// predecessor returns the path of the node before ours, "" if ours is the first.
func (n *node) predecessor(ctx context.Context, listed <-chan client.Answer) (at string, err error) {
	n.ahead = 0
	var a client.Answer
	if listed != nil {
		a, err = await(ctx, listed)
	} else {
		a, err = n.session.do(ctx, client.Children(n.dir))
	}
	name := path.Base(n.path)
	rec, queue := recordIn(n.dir, a.Children)
	ahead := slices.IndexFunc(queue, func(c contender) bool { return c.name == name })
	switch {
	case isNoNode(err), err == nil && !slices.Contains(a.Children, name):
		return "", errGone
	case err != nil:
		return "", err
	case a.DataLength > 0:
		return "", errHoldsData(n.dir, a.DataLength)
	case ahead < 0:
		return "", n.session.besideRecord(ctx, rec)
	}
	if other := obstacle(a.Children, queue[:ahead]); other != "" && other != record.Mutex {
		return "", record.Beside(other, record.Mutex)
	}
	if n.ahead = ahead; ahead == 0 {
		return "", nil
	}
	return path.Join(n.dir, queue[ahead-1].name), nil
}

// watch has the end of the node at a path told. If no other is before ours, it has ours
// watched too, which spares us a question when that one goes, and so the lock a round trip
// on its way to us: see inherits.
func (n *node) watch(ctx context.Context, at string) error {
	var own <-chan client.Answer
	if n.ahead == 1 {
		own = n.watchOwn()
	}
	n.session.client.Unwatch(n.before)
	n.before = &client.Watch{Path: at, Told: n.notify}
	_, err := n.session.do(ctx, client.Observe(n.before))
	if own != nil && (err == nil || isNoNode(err)) {
		if _, other := await(ctx, own); isNoNode(other) {
			return errGone
		}
	}
	return err
}

// watchOwn has the server tell if somebody deletes the node or writes to it, unless it
// will already: the channel is nil then.
func (n *node) watchOwn() <-chan client.Answer {
	old, own := n.own.Load(), &client.Watch{Path: n.path}
	if old.Is(client.Standing) || !n.own.CompareAndSwap(old, own) {
		return nil
	}
	own.Told = func() {
		if l := n.lease.Load(); l == nil {
			n.notify()
		} else if own.Is(client.Deleted) {
			l.deleted()
		}
	}
	return n.session.ask(client.Observe(own))
}
