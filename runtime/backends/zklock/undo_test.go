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

// remembered counts what b knows of acquisitions.
func remembered(b *Backend) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.entries) + len(b.leases)
}

// refusals counts the keys that a Locker of b was told to wait for.
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

// Who hears that a lease is lost does not release it: nothing is kept of it.
func TestEndedSessionLeavesNothing(t *testing.T) {
	t.Parallel()
	addr, root := testserver.ZooKeeper(t), newRoot(t)
	c := newClient(t, newBackend(t, root, addr))
	l := c.take(c.attempt("k", long))
	require.NotZero(t, remembered(c.Backend))
	expire(t, c.Backend, addr)
	require.ErrorIs(t, l.Renew(t.Context(), long), lock.ErrLost)
	eventually(t, long/2, "it is forgotten", func() bool { return remembered(c.Backend) == 0 }) // before its time is over
}

// An undoing that comes while another acquisition of the Locker has its turn waits for that
// one's end, and then frees nothing of it.
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
	require.Len(t, contenders(t, conn, root+"/k"), 2, "the place of the one that waits")
	leave()
	require.NoError(t, receive(t, "the undoing", undone))
	require.Len(t, contenders(t, conn, root+"/k"), 1)
	require.Zero(t, remembered(c.Backend))
	free(t, holder)
}

// A place in the queue whose undoing fails until its session has ended is forgotten with that.
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
	eventually(t, soon, "it is forgotten", func() bool { return remembered(c.Backend) == 0 })
	p.Accept()
	free(t, holder)
}

// A Close that comes while the session proves itself alive ends it at the server.
func TestCloseInsideABeat(t *testing.T) {
	t.Parallel()
	addr, root := testserver.ZooKeeper(t), newRoot(t)
	p := faultproxy.NewZooKeeper(t, addr)
	conn := admin(t, addr)
	b := New([]string{p.Addr()}, Options{Root: root})
	c := newClient(t, b)
	c.take(c.attempt("k", long))
	late := p.Late(faultproxy.Op("exists", "/"))
	receive(t, "the beat", late.Arrived())
	delivered := make(chan error, 1)
	time.AfterFunc(5*time.Millisecond, func() { delivered <- late.Deliver(t.Context()) })
	require.NoError(t, b.Close())
	_ = receive(t, "the end of the beat", delivered) // which may find the connection gone
	eventually(t, long/2, "the node goes with its session", func() bool {
		return len(contenders(t, conn, root+"/k")) == 0
	})
}

// A lease that may not be renewed has its whole length, also where the session was
// cut off while it waited.
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

// Servers whose longest timeout is lowered end sessions sooner than we were told
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
	receive(t, "the Locker's look", told)
	free(t, l)
}
