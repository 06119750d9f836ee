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

// node is a node in the queue of a key, from before its creation is asked for until it surely
// does not exist. It belongs to an entry, and to the lease once it was first.
type node struct {
	session *session
	dir     string
	prefix  string // of the name; the server adds the sequence number
	notify  func() // makes the call that waits by it try again
	lease   atomic.Pointer[lease]

	path  string // "" if it is not known whether it exists
	czxid int64

	predecessorWatch *client.Watch                // on the node before this one
	ahead            int                          // how many contenders were before this one when they were listed
	ownWatch         atomic.Pointer[client.Watch] // on this one
}

// create creates the node, and asks for the directory's children after that.
func (n *node) create(ctx context.Context, data string) (listed <-chan client.Answer, err error) {
	r := client.Create(n.dir+"/"+n.prefix, []byte(data), n.session.backend.options.ACL, zk.FlagEphemeralSequential)
	a, listed, err := n.session.createAndList(ctx, r, n.dir)
	n.path, n.czxid = a.Path, a.Czxid // zero without an answer
	return listed, err
}

// find looks for the node after its creation had no answer, and sets its path if it exists. If
// it does not, it never will: the write before the look proves that, see DESIGN.md. A node of the
// same prefix may be that of a session that has ended here, and not yet at the servers.
func (n *node) find(ctx context.Context) error {
	s := n.session
	if _, err := s.do(ctx, client.Delete(s.backend.probePath, client.AnyVersion)); !committed(err) {
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

// remove deletes the node, and reports whether it existed, or may have.
func (n *node) remove(ctx context.Context) (removed bool, err error) {
	for again := true; again; again = unanswered(err) && ctx.Err() == nil && n.session.endCause() == nil {
		if err = nil; n.path == "" {
			err = n.find(ctx)
		}
		if err == nil && n.path != "" {
			_, err = n.session.do(ctx, client.Delete(n.path, client.AnyVersion))
			removed = removed || err == nil || unanswered(err)
		}
	}
	if isNoNode(err) || n.session.endCause() != nil {
		err = nil
	}
	return removed, err
}

// forget notes that the node does not exist, nor will.
func (n *node) forget() {
	n.session.client.Unwatch(n.predecessorWatch)
	n.session.client.Unwatch(n.ownWatch.Load())
	n.session.Drop()
}

// isFirst reports whether the node is first in the queue. If it is not, and waits is set, it
// watches the node before. listed has the directory's children, if they were asked for.
func (n *node) isFirst(ctx context.Context, listed <-chan client.Answer, waits bool) (bool, error) {
	if n.knownFirst() {
		return true, nil
	}
	at := ""
	if waits && n.predecessorWatch.Is(client.Standing) {
		at = n.predecessorWatch.Path // watched again, in case a notice was lost
	} else {
		var err error
		if at, err = n.predecessor(ctx, listed); !waits || err != nil || at == "" {
			return err == nil && at == "", err
		}
	}
	err := n.watch(ctx, at)
	switch {
	case isNoNode(err): // it was deleted meanwhile
		return n.isFirst(ctx, nil, waits)
	case errors.Is(err, zk.ErrNoAuth): // the Locker tries again once a second
		return false, nil
	}
	return false, err
}

// knownFirst reports whether the node is first, as far as its watches tell: only one was before
// it, that one was deleted, and the watch on the node itself has not fired. That is enough, since
// a server tells of changes in their order, and both watches end with their connection.
func (n *node) knownFirst() bool {
	return n.ahead == 1 && n.predecessorWatch.Is(client.Deleted) && n.ownWatch.Load().Is(client.Standing)
}

// predecessor returns the path of the node before this one, "" if this is the first.
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
		return "", errNodeGone
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

// watch watches the node at a path, the one before this. If it is the only one before, watch has
// this node watched too, which saves a round trip when the other is deleted: see knownFirst.
func (n *node) watch(ctx context.Context, at string) error {
	var own <-chan client.Answer
	if n.ahead == 1 {
		own = n.watchOwn()
	}
	n.session.client.Unwatch(n.predecessorWatch)
	n.predecessorWatch = &client.Watch{Path: at, Told: n.notify}
	_, err := n.session.do(ctx, client.Observe(n.predecessorWatch))
	if own != nil && (err == nil || isNoNode(err)) {
		if _, other := await(ctx, own); isNoNode(other) {
			return errNodeGone
		}
	}
	return err
}

// watchOwn watches the node itself, for a deletion or a write by somebody else. The channel is nil
// if it is watched already.
func (n *node) watchOwn() <-chan client.Answer {
	old, own := n.ownWatch.Load(), &client.Watch{Path: n.path}
	if old.Is(client.Standing) || !n.ownWatch.CompareAndSwap(old, own) {
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
