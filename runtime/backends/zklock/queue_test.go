package zklock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/internal/faultproxy"
	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/zklock/internal/client"
	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// waiter is a waiting acquisition in the queue, with the subscription of its Locker.
type waiter struct {
	*peer
	a      *driver.Acquisition
	called driver.Subscription
}

func newWaiter(t *testing.T, b *Backend) *waiter {
	t.Helper()
	w := &waiter{peer: newClient(t, b)}
	w.a = w.waiting("k", long)
	var err error
	w.called, err = w.Subscribe(t.Context(), w.a)
	require.NoError(t, err)
	t.Cleanup(w.called.Close)
	w.held(w.a)
	return w
}

// nodeOf returns the node by which a waits.
func nodeOf(b *Backend, a *driver.Acquisition) *node {
	e, leave, err := b.enter(context.Background(), engine.PlaceOf(a))
	if err != nil {
		panic(err)
	}
	defer leave()
	return e.node
}

// turn has w take the lock when it gets a notice. It may get notices of other changes before.
func (w *waiter) turn() driver.Lease {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), soon)
	defer cancel()
	for {
		receive(w.t, "the notice", w.called.C())
		l, err := w.Acquire(ctx, w.a)
		var held *driver.HeldError
		if !errors.As(err, &held) {
			require.NoError(w.t, err)
			return l
		}
	}
}

// looks has w try again when it gets a notice. The attempt is refused.
func (w *waiter) looks() {
	w.t.Helper()
	receive(w.t, "the notice", w.called.C())
	w.held(w.a)
}

// aheadOf has n clients acquire k, one after the other. The first gets the lock, and the others wait.
// Each of them has a session of its own.
func aheadOf(t *testing.T, root, addr string, n int) (holder driver.Lease, waiters []*waiter) {
	t.Helper()
	first := newClient(t, newBackend(t, root, addr))
	holder = first.take(first.attempt("k", long))
	for range n - 1 {
		waiters = append(waiters, newWaiter(t, newBackend(t, root, addr)))
	}
	return holder, waiters
}

// reconnect has s continue over another connection.
func reconnect(t *testing.T, s *session, p *faultproxy.Proxy) {
	t.Helper()
	lost := s.client.Up()
	p.Heal()
	p.Reset()
	eventually(t, soon, "another connection", func() bool { return s.client.Up() != lost })
	receive(t, "the connection's handshake", s.client.Up())
}

// Nodes that the client may not read are not watched, but they are still ahead in the queue.
func TestUnreadableAhead(t *testing.T) {
	t.Parallel()
	addr, root := testserver.ZooKeeper(t), newRoot(t)
	conn, dir := admin(t, addr), root+"/k"
	first := newClient(t, newBackend(t, root, addr))
	held := first.take(first.attempt("k", long)) // creates the directory
	node := func(acl []zk.ACL) string {
		at, err := conn.CreateProtectedEphemeralSequential(dir+"/lock-", nil, acl)
		require.NoError(t, err)
		return at
	}
	hidden := zk.DigestACL(zk.PermAll, "somebody", "else")
	holder, middle, next := node(hidden), node(zk.WorldACL(zk.PermAll)), node(hidden)
	free(t, held)
	last := newWaiter(t, newBackend(t, root, addr))
	require.Empty(t, watchedBelow(last.Backend, dir))
	for _, at := range []string{next, middle} {
		require.NoError(t, conn.Delete(at, -1))
		for range 3 {
			last.held(last.a)
		}
	}
	require.NoError(t, conn.Delete(holder, -1))
	free(t, last.take(last.a))
}

// A try sets no watch.
func TestTryWatchesNothing(t *testing.T) {
	t.Parallel()
	addr, root, p, c := proxied(t)
	for n := 1; n <= 2; n++ {
		holder, others := aheadOf(t, root, addr, n)
		p.ResetCounts()
		c.held(c.attempt("k", long))
		require.Zero(t, p.Count("GETDATA"))
		free(t, holder)
		for _, other := range others {
			free(t, other.turn())
		}
	}
}

// A waiter behind several others lists the children again when the node before it has gone. Once it is
// known to be the next, it needs no request.
func TestLaterInTheQueue(t *testing.T) {
	t.Parallel()
	for n := 2; n <= 4; n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			addr, root, p, c := proxied(t)
			holder, others := aheadOf(t, root, addr, n)
			last := newWaiter(t, c.Backend)
			session := nodeOf(c.Backend, last.a).session
			next := others[len(others)-1]
			require.NoError(t, next.Undo(t.Context(), next.a)) // now fewer nodes are ahead
			last.looks()
			for _, other := range others[:len(others)-1] {
				require.Empty(t, last.called.C())
				free(t, holder)
				holder = other.turn()
			}
			if n > 2 {
				free(t, holder)
				free(t, last.turn())
				return
			}
			p.Hole(faultproxy.Requests)
			free(t, holder)
			l := last.turn()
			require.Greater(t, first(l), first(holder))
			reconnect(t, session, p)
			free(t, l)
		})
	}
}

// Waiters in the middle of the queue give up, in any order. The last waiter does not become the first
// before the holder releases.
func TestMiddleOfTheLineGivesUp(t *testing.T) {
	t.Parallel()
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 2, 0}, {1, 0, 2}} {
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			t.Parallel()
			addr, root := testserver.ZooKeeper(t), newRoot(t)
			holder, middle := aheadOf(t, root, addr, 4)
			last := newWaiter(t, newBackend(t, root, addr))
			n := nodeOf(last.Backend, last.a)
			for _, i := range order {
				told := n.predecessorWatch.Path == nodeOf(middle[i].Backend, middle[i].a).path
				require.NoError(t, middle[i].Undo(t.Context(), middle[i].a))
				if told {
					last.looks()
				} else {
					last.held(last.a)
				}
				require.False(t, n.knownFirst())
			}
			free(t, holder)
			free(t, last.turn())
		})
	}
}

// watchedBelow returns the nodes below dir that b watches.
func watchedBelow(b *Backend, dir string) (names []string) {
	for _, s := range sessionsOf(b) {
		for _, path := range s.client.Watched() {
			if name, below := strings.CutPrefix(path, dir+"/"); below {
				names = append(names, name)
			}
		}
	}
	return names
}

// nextInQueue has a first client hold k, and a second client, through p, wait for it.
func nextInQueue(t *testing.T, root, addr string, p *faultproxy.Proxy) (holder driver.Lease, c *peer, a *driver.Acquisition) {
	t.Helper()
	first := newClient(t, newBackend(t, root, addr))
	holder = first.take(first.attempt("k", long))
	c = newClient(t, newBackend(t, root, p.Addr()))
	a = c.waiting("k", long)
	c.held(a)
	require.Len(t, watchedBelow(c.Backend, root+"/k"), 2)
	return holder, c, a
}

// The next waiter gets the lock without a request to the server: in this test no request can
// reach the server.
func TestNextInLineAsksNothing(t *testing.T) {
	t.Parallel()
	addr, root := testserver.ZooKeeper(t), newRoot(t)
	p := faultproxy.NewZooKeeper(t, addr)
	holder, c, a := nextInQueue(t, root, addr, p)
	called, err := c.Subscribe(t.Context(), a)
	require.NoError(t, err)
	defer called.Close()
	p.Hole(faultproxy.Requests)
	free(t, holder)
	receive(t, "the notice", called.C())
	l := c.take(a)
	require.Greater(t, first(l), first(holder))
	reconnect(t, l.(*lease).node.session, p)
	require.NoError(t, l.Renew(t.Context(), long))
	free(t, l)
}

// A client notices that its own node was deleted, both while it waits and when it has the lock.
func TestNextInLineIsDeleted(t *testing.T) {
	t.Parallel()
	addr, root := testserver.ZooKeeper(t), newRoot(t)
	conn, p := admin(t, addr), faultproxy.NewZooKeeper(t, addr)
	holder, c, a := nextInQueue(t, root, addr, p)
	own := nodeOf(c.Backend, a).path
	require.NoError(t, conn.Delete(own, -1))
	eventually(t, soon, "the client has the notice", func() bool { return len(watchedBelow(c.Backend, root+"/k")) == 1 })
	free(t, holder)
	var l driver.Lease
	eventually(t, soon, "an attempt with a new node succeeds", func() (taken bool) {
		var err error
		l, err = c.Acquire(t.Context(), a)
		return err == nil
	})
	require.Len(t, contenders(t, conn, root+"/k"), 1)

	other := newClient(t, newBackend(t, root, addr))
	next := other.waiting("k", long)
	called, err := other.Subscribe(t.Context(), next)
	require.NoError(t, err)
	defer called.Close()
	other.held(next)
	free(t, l)
	receive(t, "the notice", called.C())
	l = other.take(next)
	told := make(chan struct{}, 1)
	l.(driver.LossNotifier).NotifyLoss(func() { told <- struct{}{} })
	require.NoError(t, conn.Delete(l.(*lease).node.path, -1))
	receive(t, "the loss", told)
	require.ErrorIs(t, l.Release(t.Context(), first(l)), lock.ErrLost)
}

// The notice that a release deleted the node is not reported as a loss.
func TestReleaseOfAWatchedNode(t *testing.T) {
	t.Parallel()
	b := newBackend(t, newRoot(t), testserver.ZooKeeper(t))
	c := newClient(t, b)
	l := c.take(c.attempt("k", long))
	require.NoError(t, l.Renew(t.Context(), long))
	var told atomic.Bool
	l.(driver.LossNotifier).NotifyLoss(func() { told.Store(true) })
	free(t, l)
	require.NoError(t, b.Close()) // waits for the goroutines that notify
	require.False(t, told.Load())
}

// A write to the holder's node, as Curator's Revoker makes it, does not end the lock.
func TestHolderIsWrittenTo(t *testing.T) {
	t.Parallel()
	addr, root := testserver.ZooKeeper(t), newRoot(t)
	conn := admin(t, addr)
	holder, c, a := nextInQueue(t, root, addr, faultproxy.NewZooKeeper(t, addr))
	called, err := c.Subscribe(t.Context(), a)
	require.NoError(t, err)
	defer called.Close()
	for range 2 {
		_, err = conn.Set(holder.(*lease).node.path, []byte("__REVOKE__"), -1)
		require.NoError(t, err)
		receive(t, "the notice", called.C())
		c.held(a)
	}
	free(t, holder)
	receive(t, "the notice", called.C())
	free(t, c.take(a))
}

// After a reconnection the client asks for the changes that it missed, because the server notifies of
// them in any order.
func TestNextInLineWasAway(t *testing.T) {
	t.Parallel()
	addr, root := testserver.ZooKeeper(t), newRoot(t)
	conn, p := admin(t, addr), faultproxy.NewZooKeeper(t, addr)
	holder, c, a := nextInQueue(t, root, addr, p)
	n := nodeOf(c.Backend, a)
	up := n.session.client.Up()
	p.Refuse()
	p.Reset()
	eventually(t, soon, "the client is cut off", func() bool { return n.session.client.Up() != up })
	free(t, holder)
	p.Accept()
	eventually(t, soon, "the watch has ended with its connection", func() bool { return n.predecessorWatch.Is(client.Changed) })
	require.False(t, n.knownFirst())
	require.NoError(t, conn.Delete(n.path, -1))
	begin := time.Now()
	l := c.take(a)
	require.Greater(t, l.Deadline().Left()+time.Since(begin), long-time.Second)
	require.Len(t, contenders(t, conn, root+"/k"), 1)
	free(t, l)
}

// A client that sets the watch on its predecessor again, over a new connection, also watches its own node again.
func TestNextInLineLooksAgainElsewhere(t *testing.T) {
	t.Parallel()
	addr, root := testserver.ZooKeeper(t), newRoot(t)
	conn, p := admin(t, addr), faultproxy.NewZooKeeper(t, addr)
	holder, c, a := nextInQueue(t, root, addr, p)
	called, err := c.Subscribe(t.Context(), a)
	require.NoError(t, err)
	defer called.Close()
	n := nodeOf(c.Backend, a)
	reconnect(t, n.session, p)
	_, err = conn.Set(holder.(*lease).node.path, nil, -1)
	require.NoError(t, err)
	receive(t, "the notice", called.C())
	c.held(a)
	require.True(t, n.ownWatch.Load().Is(client.Standing))
	free(t, holder)
	receive(t, "the notice", called.C())
	require.True(t, n.knownFirst())
	free(t, c.take(a))
}

// The client sends the listing of the children before it has the answer to the node's creation.
func TestListingBehindTheCreation(t *testing.T) {
	t.Parallel()
	addr, root := testserver.ZooKeeper(t), newRoot(t)
	p := faultproxy.NewZooKeeper(t, addr)
	c := newClient(t, newBackend(t, root, p.Addr()))
	free(t, c.take(c.attempt("k", long))) // creates the directory
	p.ResetCounts()
	p.Delay(faultproxy.Replies, 2*time.Second)
	a := c.attempt("k", long)
	taken := make(chan driver.Lease, 1)
	go func() { taken <- c.take(a) }()
	eventually(t, soon, "the listing is sent", func() bool { return p.Count("GETCHILDREN") > 0 })
	require.Empty(t, taken)
	p.Heal()
	free(t, receive(t, "the lock", taken))
}
