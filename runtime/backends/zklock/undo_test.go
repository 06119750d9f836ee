package zklock

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/internal/faultproxy"
	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/zklock/internal/client"
	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// remembered counts the entries and leases in the tables of b.
func remembered(b *Backend) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.entries) + len(b.leases)
}

// refusals counts the entries of b that were told to wait.
func refusals(b *Backend) (n int) {
	b.mu.Lock()
	keys := slices.Collect(maps.Keys(b.entries))
	b.mu.Unlock()
	for _, key := range keys {
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		if e, leave, err := b.enter(ctx, key); err == nil {
			if e.waiting != "" {
				n++
			}
			leave()
		}
		cancel()
	}
	return n
}

// A Locker does not release a lease that was lost, so the Backend must forget the lease by itself.
func TestEndedSessionLeavesNothing(t *testing.T) {
	t.Parallel()
	addr, root := testserver.ZooKeeper(t), newRoot(t)
	c := newClient(t, newBackend(t, root, addr))
	l := c.take(c.attempt("k", long))
	require.NotZero(t, remembered(c.Backend))
	expire(t, c.Backend, addr)
	require.ErrorIs(t, l.Renew(t.Context(), long), lock.ErrLost)
	eventually(t, long/2, "the lease is forgotten", func() bool { return remembered(c.Backend) == 0 }) // long before its ttl is over
}

// An undo begins while another acquisition of the Locker has the turn of the entry. The undo waits for the
// end of that acquisition, and then frees nothing of it.
func TestUndoneUnderATry(t *testing.T) {
	t.Parallel()
	addr, root := testserver.ZooKeeper(t), newRoot(t)
	other, c := newClient(t, newBackend(t, root, addr)), newClient(t, newBackend(t, root, addr))
	holder := other.take(other.attempt("k", long))
	a := c.waiting("k", long)
	c.held(a)
	e, leave, err := c.enter(t.Context(), engine.PlaceOf(a))
	require.NoError(t, err)
	undone := make(chan error, 1)
	go func() { undone <- c.Undo(t.Context(), a) }()
	try := c.attempt("k", long)
	_, err = e.acquire(t.Context(), try, root+"/k")
	require.NotNil(t, engine.HeldBy(err), "%v", err)
	conn := admin(t, addr)
	require.Len(t, contenders(t, conn, root+"/k"), 2, "the waiting acquisition must still have its place")
	leave()
	require.NoError(t, receive(t, "the undo", undone))
	require.Len(t, contenders(t, conn, root+"/k"), 1)
	require.Zero(t, remembered(c.Backend))
	free(t, holder)
}

// The undo of a place in the queue fails until the session has ended. Then the Backend forgets the place.
func TestPlaceInAnEndedSessionIsForgotten(t *testing.T) {
	t.Parallel()
	addr, root, p, c := proxied(t)
	other := newClient(t, newBackend(t, root, addr))
	holder, a := other.take(other.attempt("k", long)), c.waiting("k", long)
	c.held(a)
	s := nodeOf(c.Backend, a).session
	p.Refuse()
	p.Reset()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	require.Error(t, c.Undo(ctx, a))
	s.End(driver.ErrLost)
	eventually(t, soon, "the place is forgotten", func() bool { return remembered(c.Backend) == 0 })
	p.Accept()
	free(t, holder)
}

// A Close during a keep-alive of the session ends the session at the server.
func TestCloseInsideABeat(t *testing.T) {
	t.Parallel()
	addr, root := testserver.ZooKeeper(t), newRoot(t)
	p := faultproxy.NewZooKeeper(t, addr)
	conn := admin(t, addr)
	b := New([]string{p.Addr()}, Options{Root: root})
	c := newClient(t, b)
	c.take(c.attempt("k", long))
	late := p.Late(faultproxy.Op("exists", "/"))
	receive(t, "the keep-alive", late.Arrived())
	delivered := make(chan error, 1)
	time.AfterFunc(5*time.Millisecond, func() { delivered <- late.Deliver(t.Context()) })
	require.NoError(t, b.Close())
	_ = receive(t, "the end of the keep-alive", delivered) // an error if the connection has ended by then
	eventually(t, long/2, "the node is deleted with its session", func() bool {
		return len(contenders(t, conn, root+"/k")) == 0
	})
}

// A lease with NoRenewal has its whole length, even if the session was cut off while the acquisition
// waited.
func TestFixedLeaseAfterAnOutage(t *testing.T) {
	t.Parallel()
	addr, root := testserver.ZooKeeper(t), newRoot(t)
	p := faultproxy.NewZooKeeper(t, addr)
	holder, c, a := nextInQueue(t, root, addr, p)
	a.NoRenewal = true
	p.Refuse()
	p.Reset()
	time.Sleep(long / 2)
	free(t, holder)
	p.Accept()
	begin := time.Now()
	l := c.take(a)
	require.Greater(t, l.Deadline().Left()+time.Since(begin), long)
	free(t, l)
}

// The servers' longest timeout is lowered, so that they end sessions sooner than they said
// when the leases were granted.
func TestTimeoutIsLowered(t *testing.T) {
	t.Parallel()
	addr, root := testserver.ZooKeeper(t), newRoot(t)
	c := newClient(t, newBackend(t, root, addr))
	l := c.take(c.attempt("k", long))
	s := l.(*lease).node.session
	told := make(chan struct{}, 1)
	l.(driver.LossNotifier).NotifyLoss(func() {
		select {
		case told <- struct{}{}:
		default:
		}
	})
	granted := make(chan bool, 1)
	s.client.Send(client.Exists("/"), func(client.Answer) {
		s.grant(long/4, driver.Now())
		granted <- true
	})
	receive(t, "the grant", granted)
	require.LessOrEqual(t, l.Deadline().Left(), long/4)
	receive(t, "the notice of the loss", told)
	free(t, l)
}
