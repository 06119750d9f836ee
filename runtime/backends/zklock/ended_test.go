package zklock

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/internal/faultproxy"
	"github.com/lockgen/lockgen/runtime/driver"
)

// A node of a session that has ended here, and not yet at the servers, has the same name as
// the one that its acquisition asks for on the next session. It is not taken for that one:
// the lock would end with the old session.
func TestNodeOfAnEndedSession(t *testing.T) {
	t.Parallel()
	addr, root, p, c := proxied(t)
	conn, other := admin(t, addr), newClient(t, newBackend(t, root, addr))
	holder := other.take(other.attempt("k", long))
	a := c.waiting("k", long)
	c.held(a)
	old := nodeOf(c.Backend, a)
	p.Hole(faultproxy.Requests)
	old.session.End(driver.ErrLost) // as it does when its deadline has passed
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
	require.True(t, isHeld(receive(t, "the answer", answer)))
	require.NotEqual(t, old.path, nodeOf(c.Backend, a).path)
	require.Len(t, contenders(t, conn, root+"/k"), 3)

	free(t, holder)
	takeAway(t, old.session, addr)
	l := c.take(a)
	other.held(other.attempt("k", long))
	free(t, l)
	free(t, other.take(other.attempt("k", long)))
}

// An acquire that waits for a connection goes on with another session if the servers have
// ended the one that it has.
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
	eventually(t, soon, "it is cut off", func() bool { return s.client.Up() != up })
	takeAway(t, s, addr)
	type answer struct {
		l   driver.Lease
		err error
	}
	got := make(chan answer, 1)
	go func() {
		l, err := c.Acquire(context.WithoutCancel(t.Context()), a)
		got <- answer{l, err}
	}()
	eventually(t, soon, "it has the turn", func() bool {
		done, cancel := context.WithCancel(t.Context())
		cancel()
		_, leave, err := c.enter(done, keyOf(a))
		if err == nil {
			leave()
		}
		return err != nil
	})
	p.Accept()
	is := receive(t, "the lock", got)
	require.NoError(t, is.err)
	free(t, is.l)
}
