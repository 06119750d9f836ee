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

// waiter is one in the queue, with its Locker's subscription.
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

// turn has w take the lock when it is told. It may be told of another before.
func (w *waiter) turn() driver.Lease {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), soon)
	defer cancel()
	for {
		receive(w.t, "the call", w.called.C())
		l, err := w.Acquire(ctx, w.a)
		var held *driver.HeldError
		if !errors.As(err, &held) {
			require.NoError(w.t, err)
			return l
		}
	}
}

// looks has w look again when it is told, in vain.
func (w *waiter) looks() {
	w.t.Helper()
	receive(w.t, "the call", w.called.C())
	w.held(w.a)
}

// aheadOf has n wait at k, one after the other, the first of whom has it. None of
// them shares a session.
func aheadOf(t *testing.T, root, addr string, n int) (holder driver.Lease, waiters []*waiter) {
	t.Helper()
	first := newClient(t, newBackend(t, root, addr))
	holder = first.take(first.attempt("k", long))
	for range n - 1 {
		waiters = append(waiters, newWaiter(t, newBackend(t, root, addr)))
	}
	return holder, waiters
}

// reconnect has s go on over another connection.
func reconnect(t *testing.T, s *session, p *faultproxy.Proxy) {
	t.Helper()
	lost := s.client.Up()
	p.Heal()
	p.Reset()
	eventually(t, soon, "another connection", func() bool { return s.client.Up() != lost })
	receive(t, "it", s.client.Up())
}

// Nodes that may not be read are not watched; they are before it all the same.
func TestUnreadableAhead(t *testing.T) {
	t.Parallel()
	addr, root := testserver.ZooKeeper(t), newRoot(t)
	conn, dir := admin(t, addr), root+"/k"
	first := newClient(t, newBackend(t, root, addr))
	held := first.take(first.attempt("k", long)) // so that the directory stands
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

// A try watches nothing.
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

// Who joins behind others asks who is left when the one before it has gone, and needs no
// question once it is known to be the next.
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
			require.NoError(t, next.Undo(t.Context(), next.a)) // those before it are fewer
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

// Those in the middle of the line who give up make nobody the first but the next
// one, in whatever order they go.
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

// watchedBelow returns the nodes below dir whose end b waits for.
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

// nextInQueue has a second client, over p, wait for what the first one holds.
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

// The next in line has the lock without a question to the server: none could
// reach it here.
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
	receive(t, "the call", called.C())
	l := c.take(a)
	require.Greater(t, first(l), first(holder))
	reconnect(t, l.(*lease).node.session, p)
	require.NoError(t, l.Renew(t.Context(), long))
	free(t, l)
}

// Its own node's end is noticed, while it waits and once it has the lock.
func TestNextInLineIsDeleted(t *testing.T) {
	t.Parallel()
	addr, root := testserver.ZooKeeper(t), newRoot(t)
	conn, p := admin(t, addr), faultproxy.NewZooKeeper(t, addr)
	holder, c, a := nextInQueue(t, root, addr, p)
	own := nodeOf(c.Backend, a).path
	require.NoError(t, conn.Delete(own, -1))
	eventually(t, soon, "it is told", func() bool { return len(watchedBelow(c.Backend, root+"/k")) == 1 })
	free(t, holder)
	var l driver.Lease
	eventually(t, soon, "it stands anew", func() (taken bool) {
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
	receive(t, "the call", called.C())
	l = other.take(next)
	told := make(chan struct{}, 1)
	l.(driver.LossNotifier).NotifyLoss(func() { told <- struct{}{} })
	require.NoError(t, conn.Delete(l.(*lease).node.path, -1))
	receive(t, "the loss", told)
	require.ErrorIs(t, l.Release(t.Context(), first(l)), lock.ErrLost)
}

// A release that deletes the node is no loss.
func TestReleaseOfAWatchedNode(t *testing.T) {
	t.Parallel()
	b := newBackend(t, newRoot(t), testserver.ZooKeeper(t))
	c := newClient(t, b)
	l := c.take(c.attempt("k", long))
	require.NoError(t, l.Renew(t.Context(), long))
	var told atomic.Bool
	l.(driver.LossNotifier).NotifyLoss(func() { told.Store(true) })
	free(t, l)
	require.NoError(t, b.Close()) // waits for what tells
	require.False(t, told.Load())
}

// One that is written to, as Curator's Revoker does, has not gone.
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
	receive(t, "the call", called.C())
	free(t, c.take(a))
}

// What happened while there was no connection is asked for: the server tells of
// it in no order.
func TestNextInLineWasAway(t *testing.T) {
	t.Parallel()
	addr, root := testserver.ZooKeeper(t), newRoot(t)
	conn, p := admin(t, addr), faultproxy.NewZooKeeper(t, addr)
	holder, c, a := nextInQueue(t, root, addr, p)
	n := nodeOf(c.Backend, a)
	up := n.session.client.Up()
	p.Refuse()
	p.Reset()
	eventually(t, soon, "it is cut off", func() bool { return n.session.client.Up() != up })
	free(t, holder)
	p.Accept()
	eventually(t, soon, "it hears of the cut", func() bool { return n.predecessorWatch.Is(client.Changed) })
	require.False(t, n.knownFirst())
	require.NoError(t, conn.Delete(n.path, -1))
	begin := time.Now()
	l := c.take(a)
	require.Greater(t, l.Deadline().Left()+time.Since(begin), long-time.Second)
	require.Len(t, contenders(t, conn, root+"/k"), 1)
	free(t, l)
}

// Who looks again over another connection has its own node watched over that too.
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
	receive(t, "the call", called.C())
	require.True(t, n.knownFirst())
	free(t, c.take(a))
}

// The listing is under way before the node's creation is answered.
func TestListingBehindTheCreation(t *testing.T) {
	t.Parallel()
	addr, root := testserver.ZooKeeper(t), newRoot(t)
	p := faultproxy.NewZooKeeper(t, addr)
	c := newClient(t, newBackend(t, root, p.Addr()))
	free(t, c.take(c.attempt("k", long))) // the directory stands
	p.ResetCounts()
	p.Delay(faultproxy.Replies, 2*time.Second)
	a := c.attempt("k", long)
	taken := make(chan driver.Lease, 1)
	go func() { taken <- c.take(a) }()
	eventually(t, soon, "it is asked", func() bool { return p.Count("GETCHILDREN") > 0 })
	require.Empty(t, taken)
	p.Heal()
	free(t, receive(t, "the lock", taken))
}
