package zklock

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/internal/faultproxy"
	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

// waitedFor returns the nodes below dir whose end b waits for.
func waitedFor(b *Backend, dir string) (names []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.sessions {
		s.watches.mu.Lock()
		for path := range s.watches.path {
			if name, below := strings.CutPrefix(path, dir+"/"); below {
				names = append(names, name)
			}
		}
		s.watches.mu.Unlock()
	}
	return names
}

// nextInLine has a second client, over p, wait for what the first one holds.
func nextInLine(t *testing.T, root, addr string, p *faultproxy.Proxy) (holder driver.Lease, c *client, a *driver.Acquisition) {
	t.Helper()
	first := newClient(t, newBackend(t, root, addr))
	holder = first.take(first.attempt("k", long))
	c = newClient(t, newBackend(t, root, p.Addr()))
	a = c.waiting("k", long)
	c.held(a)
	require.Len(t, waitedFor(c.Backend, root+"/k"), 2)
	return holder, c, a
}

// The next in line has the lock without a question to the server: none could
// reach it here.
func TestNextInLineAsksNothing(t *testing.T) {
	t.Parallel()
	addr, root := testserver.ZooKeeper(t), newRoot(t)
	p := faultproxy.NewZooKeeper(t, addr)
	holder, c, a := nextInLine(t, root, addr, p)
	called, err := c.Subscribe(t.Context(), a)
	require.NoError(t, err)
	defer called.Close()
	p.Hole(faultproxy.Requests)
	free(t, holder)
	receive(t, "the call", called.C())
	l := c.take(a)
	require.Greater(t, first(l), first(holder))
	reconnect(t, l.(*lease).place.session, p)
	require.NoError(t, l.Renew(t.Context(), long))
	free(t, l)
}

// Its own node's end is noticed, while it waits and once it has the lock.
func TestNextInLineIsDeleted(t *testing.T) {
	t.Parallel()
	addr, root := testserver.ZooKeeper(t), newRoot(t)
	conn, p := admin(t, addr), faultproxy.NewZooKeeper(t, addr)
	holder, c, a := nextInLine(t, root, addr, p)
	own := c.line[spotOf(a)].path
	require.NoError(t, conn.Delete(own, -1))
	eventually(t, soon, "it is told", func() bool { return len(waitedFor(c.Backend, root+"/k")) == 1 })
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
	require.NoError(t, conn.Delete(l.(*lease).place.path, -1))
	receive(t, "the loss", told)
	require.ErrorIs(t, l.Release(t.Context(), first(l)), lock.ErrLost)
}

// One that is written to, as Curator's Revoker does, has not gone.
func TestHolderIsWrittenTo(t *testing.T) {
	t.Parallel()
	addr, root := testserver.ZooKeeper(t), newRoot(t)
	conn := admin(t, addr)
	holder, c, a := nextInLine(t, root, addr, faultproxy.NewZooKeeper(t, addr))
	called, err := c.Subscribe(t.Context(), a)
	require.NoError(t, err)
	defer called.Close()
	for range 2 {
		_, err = conn.Set(holder.(*lease).place.path, []byte("__REVOKE__"), -1)
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
	holder, c, a := nextInLine(t, root, addr, p)
	place := c.line[spotOf(a)]
	p.Refuse()
	p.Reset()
	eventually(t, soon, "it is cut off", func() bool { return !closed(place.session.isUp()) })
	free(t, holder)
	p.Accept()
	eventually(t, soon, "it hears of the release", func() bool { return place.on(onNext).hasGone() })
	require.False(t, place.inherits())
	require.NoError(t, conn.Delete(place.path, -1))
	l := c.take(a)
	require.Len(t, contenders(t, conn, root+"/k"), 1)
	require.Positive(t, l.Deadline().Left()-long+time.Second)
	free(t, l)
}

// Its own node's watch is of the old connection where it looks again over another.
func TestNextInLineLooksAgainElsewhere(t *testing.T) {
	t.Parallel()
	addr, root := testserver.ZooKeeper(t), newRoot(t)
	conn, p := admin(t, addr), faultproxy.NewZooKeeper(t, addr)
	holder, c, a := nextInLine(t, root, addr, p)
	called, err := c.Subscribe(t.Context(), a)
	require.NoError(t, err)
	defer called.Close()
	place := c.line[spotOf(a)]
	reconnect(t, place.session, p)
	_, err = conn.Set(holder.(*lease).place.path, nil, -1)
	require.NoError(t, err)
	receive(t, "the notice", called.C())
	c.held(a)
	require.NotNil(t, place.session.watches.via(place.on(onOwn)))
	free(t, holder)
	receive(t, "the call", called.C())
	require.False(t, place.inherits())
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
	c.mu.Lock()
	creating := c.attempts[a.ID].pending != nil
	c.mu.Unlock()
	require.True(t, creating)
	p.Heal()
	free(t, receive(t, "the lock", taken))
}
