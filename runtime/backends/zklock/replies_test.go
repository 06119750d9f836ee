package zklock

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/internal/faultproxy"
	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

const long = 8 * time.Second

// proxied returns a client that is connected through a proxy and has a session.
func proxied(t *testing.T) (addr, root string, p *faultproxy.Proxy, c *peer) {
	addr, root = testserver.ZooKeeper(t), newRoot(t)
	p = faultproxy.NewZooKeeper(t, addr)
	c = newClient(t, newBackend(t, root, p.Addr()))
	free(t, c.take(c.attempt("warm", long)))
	return addr, root, p, c
}

// S12, S72: the reply to a create is lost. The client finds the node again by its
// protection ID, so there is one node and one lease.
func TestLostReplyToCreate(t *testing.T) {
	t.Parallel()
	addr, root, p, c := proxied(t)
	conn := admin(t, addr)
	for n := 1; n <= 3; n++ {
		for _, op := range []string{"create", "getChildren", "delete"} {
			lost := p.Swallow(1, faultproxy.Op("create", root+"/k"))
			switch op {
			case "getChildren":
				p.Swallow(n, faultproxy.Op(op, root+"/k"))
			case "delete":
				p.Swallow(n, faultproxy.Op(op, c.probePath))
			}
			a := c.waiting("k", long)
			l := c.take(a)
			receive(t, "the lost reply", lost)
			names := contenders(t, conn, root+"/k")
			require.Len(t, names, 1, "%s %d", op, n)
			require.Contains(t, names[0], protectedPrefix(a.ID))
			_, stat, err := conn.Exists(root + "/k/" + names[0])
			require.NoError(t, err)
			require.EqualValues(t, stat.Czxid, first(l)>>16)
			free(t, l)
			require.Empty(t, contenders(t, conn, root+"/k"))
		}
	}
}

// S65, F10: a lost reply to the listing leaves no orphaned node for which all others would wait.
func TestLostReplyToChildren(t *testing.T) {
	t.Parallel()
	addr, root, p, c := proxied(t)
	other := newClient(t, newBackend(t, root, addr))
	lost := p.Swallow(2, faultproxy.Op("getChildren", root+"/k"))
	l := c.take(c.attempt("k", long))
	receive(t, "the lost replies", lost)
	free(t, l)
	free(t, other.take(other.attempt("k", long)))
}

// S17: a release whose reply was lost has freed the key. A second call of Release succeeds.
func TestLostReplyToDelete(t *testing.T) {
	t.Parallel()
	addr, root, p, c := proxied(t)
	other := newClient(t, newBackend(t, root, addr))
	l := c.take(c.attempt("k", long))
	lost := p.Swallow(1, faultproxy.Op("delete", root+"/k"))
	err := l.Release(t.Context(), first(l))
	receive(t, "the lost reply", lost)
	if err != nil {
		require.NotErrorIs(t, err, lock.ErrLost)
		free(t, l)
	}
	next := other.take(other.attempt("k", long))
	require.ErrorIs(t, l.Release(t.Context(), first(l)), lock.ErrLost)
	free(t, next)
}

// S15, S24: an acquire that was given up while its create was held back is undone,
// however late the create arrives.
func TestUndoBeforeTheCreate(t *testing.T) {
	t.Parallel()
	addr, root, p, c := proxied(t)
	conn, other := admin(t, addr), newClient(t, newBackend(t, root, addr))
	free(t, other.take(other.attempt("k", long))) // creates the directory
	for _, a := range []*driver.Acquisition{c.attempt("k", long), c.waiting("k", long)} {
		late := p.Late(faultproxy.Op("create", root+"/k"))
		ctx, cancel := context.WithCancel(t.Context())
		acquired := make(chan error, 1)
		go func() {
			_, err := c.Acquire(ctx, a)
			acquired <- err
		}()
		receive(t, "the create", late.Arrived())
		begin := time.Now()
		cancel()
		require.ErrorIs(t, receive(t, "an answer", acquired), lock.ErrIndeterminate)
		require.Less(t, time.Since(begin), 100*time.Millisecond+meter.Since(begin))
		ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
		require.Error(t, c.Undo(ctx, a), "the client can't know yet whether the node will be created")
		cancel()
		undone := make(chan error, 1)
		go func() { undone <- c.Undo(context.WithoutCancel(t.Context()), a) }()
		require.NoError(t, late.Deliver(t.Context()))
		require.NoError(t, receive(t, "the undo", undone))
		require.Empty(t, contenders(t, conn, root+"/k"))
		free(t, other.take(other.attempt("k", long)))
	}
}

// The same if the connection ends too while the create is under way. The session
// continues over another connection. It finds the node, or finds that the node can't be created
// any more.
func TestUndoOverAnotherConnection(t *testing.T) {
	t.Parallel()
	addr, root, p, c := proxied(t)
	conn, other := admin(t, addr), newClient(t, newBackend(t, root, addr))
	free(t, other.take(other.attempt("k", long)))
	for range 5 {
		free(t, c.take(c.attempt("warm", long))) // connects
		a := c.attempt("k", long)
		lost := p.Swallow(1, faultproxy.Op("create", root+"/k"))
		p.Swallow(2, faultproxy.Op("delete", c.probePath))
		p.Delay(faultproxy.Requests, 30*time.Millisecond)
		_, err := c.Acquire(until(t, lost), a)
		require.ErrorIs(t, err, lock.ErrIndeterminate)
		p.Heal()
		ctx, cancel := context.WithTimeout(t.Context(), soon)
		// The connection may end just before the undo is sent. A Locker also calls Undo again.
		for err := c.Undo(ctx, a); err != nil; err = c.Undo(ctx, a) {
			require.NoError(t, ctx.Err(), "the last attempt: %v", err)
		}
		cancel()
		require.Empty(t, contenders(t, conn, root+"/k"))
		free(t, other.take(other.attempt("k", long)))
	}
}

// Two acquisitions of one Locker, of which one is being undone, never both hold the key.
func TestUndoUnderWayBesideTheNext(t *testing.T) {
	t.Parallel()
	addr, root, p, c := proxied(t)
	other := newClient(t, newBackend(t, root, addr))
	lost := p.Swallow(1, faultproxy.Op("create", root+"/k"))
	old := c.attempt("k", long)
	p.Delay(faultproxy.Replies, 20*time.Millisecond)
	_, err := c.Acquire(until(t, lost), old)
	require.Error(t, err)
	p.Heal()
	// The old acquisition's node is first, and nobody uses it. The next acquisition waits until it is deleted.
	undone := make(chan error, 1)
	go func() { undone <- c.Undo(context.WithoutCancel(t.Context()), old) }()
	var l driver.Lease
	next := c.waiting("k", long)
	eventually(t, soon, "the next acquisition's turn", func() bool {
		l, err = c.Acquire(t.Context(), next)
		return err == nil
	})
	require.NoError(t, receive(t, "the undo", undone))
	require.NoError(t, c.Undo(t.Context(), old), "a second undo must not free another acquisition")
	other.held(other.attempt("k", long))
	free(t, l)
	free(t, other.take(other.attempt("k", long)))
}

// S19, S74: a release that fails is repeated in the background, and the node is gone soon
// after the servers answer again.
func TestReleaseWithoutAConnection(t *testing.T) {
	t.Parallel()
	addr, root, p, c := proxied(t)
	conn := admin(t, addr)
	l := c.take(c.attempt("k", long))
	p.Refuse()
	p.Reset()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := l.Release(ctx, first(l))
	require.Error(t, err)
	require.NotErrorIs(t, err, lock.ErrLost)
	require.Len(t, contenders(t, conn, root+"/k"), 1)
	require.NotZero(t, remembered(c.Backend), "the lease is remembered as long as its node exists")
	p.Accept()
	eventually(t, long/2, "the node is gone, without another call", func() bool { return len(contenders(t, conn, root+"/k")) == 0 })
	free(t, l) // succeeds: the release that had no answer was done in the background
}

// S98: nothing is remembered of acquisitions that have ended.
func TestNothingIsRemembered(t *testing.T) {
	t.Parallel()
	addr, root := testserver.ZooKeeper(t), newRoot(t)
	b := newBackend(t, root, addr)
	c, other := newClient(t, b), newClient(t, newBackend(t, root, addr))
	for range 20 {
		l := other.take(other.attempt("k", long))
		c.held(c.attempt("k", long))
		waiting := c.waiting("k", long)
		c.held(waiting)
		require.NoError(t, c.Undo(t.Context(), waiting))
		free(t, l)
		free(t, c.take(c.attempt("k", long)))
	}
	require.Zero(t, remembered(b))
	for _, s := range sessionsOf(b) {
		require.Empty(t, s.client.Watched())
	}
}
