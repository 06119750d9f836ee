package zklock

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/internal/faultproxy"
	"github.com/lockgen/lockgen/internal/testserver"
	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// A session has ended in the client, but not yet at the servers. The node that an acquisition made in
// it has the same name as the node that the acquisition requests in the next session. The client must
// not mistake the old node for the new one: the lock would end with the old session.
func TestNodeOfAnEndedSession(t *testing.T) {
	t.Parallel()
	addr, root, p, c := proxied(t)
	conn, other := admin(t, addr), newClient(t, newBackend(t, root, addr))
	holder := other.take(other.attempt("k", long))
	a := c.waiting("k", long)
	c.held(a)
	old := nodeOf(c.Backend, a)
	p.Hole(faultproxy.Requests)
	old.session.End(driver.ErrLost) // this also happens when its deadline passes
	receive(t, "the end of its client", old.session.closed)
	p.Heal()
	lost := p.Late(faultproxy.Op("create", root+"/k"))
	answer := make(chan error, 1)
	go func() {
		_, err := c.Acquire(context.WithoutCancel(t.Context()), a)
		answer <- err
	}()
	receive(t, "the create", lost.Arrived())
	p.Reset()
	require.NotNil(t, engine.HeldBy(receive(t, "the answer", answer)))
	require.NotEqual(t, old.path, nodeOf(c.Backend, a).path)
	require.Len(t, contenders(t, conn, root+"/k"), 3)

	free(t, holder)
	takeAway(t, old.session, addr)
	l := c.take(a)
	other.held(other.attempt("k", long))
	free(t, l)
	free(t, other.take(other.attempt("k", long)))
}

// An acquire waits for a connection, and the servers have ended its session. It continues with
// another session.
func TestExpiryBeforeTheRequestIsSent(t *testing.T) {
	t.Parallel()
	addr, _, p, c := proxied(t)
	a := c.attempt("k", long)
	s, err := c.session(t.Context(), long)
	require.NoError(t, err)
	defer s.Drop()
	up := s.client.Up()
	p.Refuse()
	p.Reset()
	eventually(t, soon, "the client is cut off", func() bool { return s.client.Up() != up })
	takeAway(t, s, addr)
	got := begin(c, a)
	p.Accept()
	is := receive(t, "the lock", got)
	require.NoError(t, is.err)
	free(t, is.l)
}

type answer struct {
	l   driver.Lease
	err error
}

// begin has c acquire in the background, and returns when the acquire has the turn of its entry.
func begin(c *peer, a *driver.Acquisition) <-chan answer {
	got := make(chan answer, 1)
	go func() {
		l, err := c.Acquire(context.WithoutCancel(c.t.Context()), a)
		got <- answer{l, err}
	}()
	eventually(c.t, soon, "the acquire has the turn", func() bool {
		ctx, cancel := context.WithTimeout(c.t.Context(), time.Millisecond)
		defer cancel()
		_, leave, err := c.enter(ctx, engine.PlaceOf(a))
		if err == nil {
			leave()
		}
		return err != nil
	})
	return got
}

// An acquisition with NoRenewal waits until its session is sure to last for the whole lease. If the
// session ends instead, the acquisition begins again.
func TestFixedLeaseWhoseSessionEnds(t *testing.T) {
	t.Parallel()
	addr, root := testserver.ZooKeeper(t), newRoot(t)
	p := faultproxy.NewZooKeeper(t, addr)
	holder, c, a := nextInQueue(t, root, addr, p)
	a.NoRenewal = true
	n := nodeOf(c.Backend, a)
	free(t, holder)
	eventually(t, soon, "the node is the first", n.knownFirst)
	p.Hole(faultproxy.Requests)
	eventually(t, soon, "the session may end before the lease", func() bool { return n.session.Left() < long })
	got := begin(c, a)
	takeAway(t, n.session, addr)
	n.session.End(driver.ErrLost)
	p.Heal() // not earlier: a session that is extended gives the lock to n
	p.Reset()
	is := receive(t, "the lock", got)
	require.NoError(t, is.err)
	require.NotSame(t, n, is.l.(*lease).node)
	free(t, is.l)
}

// If the session ends between the grant and the creation of the lease, nothing is left of the acquisition.
func TestNoLeaseOnAnEndedSession(t *testing.T) {
	t.Parallel()
	addr, _, _, c := proxied(t)
	a := c.attempt("k", long)
	dir, err := c.directory("k")
	require.NoError(t, err)
	e, leave, err := c.enter(t.Context(), engine.PlaceOf(a))
	require.NoError(t, err)
	first, err := e.attempt(t.Context(), a, dir)
	require.NoError(t, err)
	require.True(t, first)
	expire(t, c.Backend, addr)
	eventually(t, soon, "the session has ended", func() bool { return len(sessionsOf(c.Backend)) == 0 })
	_, err = e.grant(t.Context(), a, driver.Now())
	require.ErrorIs(t, err, errNodeGone)
	leave()
	require.NoError(t, c.Undo(t.Context(), a))
	require.Zero(t, remembered(c.Backend))
}
