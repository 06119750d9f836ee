package zklock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/internal/faultproxy"
	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
)

// Requests arrive but answers are lost, so each new connection tells the server that the session lives.
// The holder loses its lock by its own deadline, and the server ends the session soon after.
func TestAnswersAreLost(t *testing.T) {
	t.Parallel()
	addr, root := testserver.ZooKeeper(t), newRoot(t)
	p := faultproxy.NewZooKeeper(t, addr)
	ctx, finish := enter(t, newLocker(t, root, p.Addr()), ttl(2*second), "k")
	p.Hole(faultproxy.Replies)
	err := newLocker(t, root, addr).Do(t.Context(), &lock.Policy{TTL: 2 * second, Wait: 6 * second}, "k", func(context.Context) error {
		require.ErrorIs(t, context.Cause(ctx), lock.ErrLost)
		return nil
	})
	require.NoError(t, err)
	p.Heal()
	require.ErrorIs(t, finish(), lock.ErrLost)
}

// A waiter's session ends while the servers can't be reached. The waiter queues again when it can
// reach them.
func TestWaitsWhileTheServersAreAway(t *testing.T) {
	t.Parallel()
	addr, root := testserver.ZooKeeper(t), newRoot(t)
	p := faultproxy.NewZooKeeper(t, addr)
	conn := admin(t, addr)
	_, leave := enter(t, newLocker(t, root, addr), ttl(20*second), "k")
	b, done := New([]string{p.Addr()}, Options{Root: root}), make(chan error, 1)
	waiter := lockerOn(t, b)
	go func() {
		done <- waiter.Do(context.WithoutCancel(t.Context()), ttl(second), "k", func(context.Context) error { return nil })
	}()
	eventually(t, soon, "the waiter is refused", func() bool { return refusals(b) == 1 })
	p.Refuse()
	p.Reset()
	eventually(t, soon, "the waiter's session has ended", func() bool { return len(contenders(t, conn, root+"/k")) == 1 })
	select {
	case err := <-done:
		t.Fatalf("the waiter stopped waiting: %v", err)
	case <-time.After(5 * second):
	}
	p.Accept()
	eventually(t, soon, "the waiter is in the queue again", func() bool { return len(contenders(t, conn, root+"/k")) == 2 })
	require.NoError(t, leave())
	require.NoError(t, receive(t, "the waiter's turn", done))
}

// A wait that ends while the servers can't be reached does not report that the lock is held.
func TestWaitEndsWhileTheServersAreAway(t *testing.T) {
	t.Parallel()
	addr := testserver.ZooKeeper(t)
	for name, fault := range map[string]func(p *faultproxy.Proxy){
		"away":   func(p *faultproxy.Proxy) { p.Refuse(); p.Reset() },
		"silent": func(p *faultproxy.Proxy) { p.Hole(faultproxy.Requests | faultproxy.Replies) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root, p := newRoot(t), faultproxy.NewZooKeeper(t, addr)
			_, leave := enter(t, newLocker(t, root, addr), ttl(20*second), "k")
			b, done := New([]string{p.Addr()}, Options{Root: root}), make(chan error, 1)
			waiter := lockerOn(t, b)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() {
				_, _, err := waiter.Acquire(ctx, ttl(10*second), "k")
				done <- err
			}()
			eventually(t, soon, "the waiter is refused", func() bool { return refusals(b) == 1 })
			fault(p)
			time.Sleep(3300 * time.Millisecond) // after that time the last refusal no longer counts
			cancel()
			err := receive(t, "the end of the wait", done)
			require.NotErrorIs(t, err, lock.ErrNotAcquired)
			require.True(t, errors.Is(err, lock.ErrUnavailable) || errors.Is(err, lock.ErrIndeterminate), "%v", err)
			require.NoError(t, leave())
		})
	}
}

// Slow answers move the deadline less far, but far enough to keep the lease.
func TestAnswersAreSlow(t *testing.T) {
	t.Parallel()
	addr, root := testserver.ZooKeeper(t), newRoot(t)
	p := faultproxy.NewZooKeeper(t, addr)
	ctx, finish := enter(t, newLocker(t, root, p.Addr()), ttl(4*second), "k")
	p.Delay(faultproxy.Replies, second) // a quarter of the lease
	for begin := time.Now(); time.Since(begin) < 8*second; time.Sleep(50 * time.Millisecond) {
		require.NoError(t, lock.Check(ctx), "after %v", time.Since(begin))
	}
	p.Heal()
	require.NoError(t, finish())
}

// The first call returns an error for addresses that can't be right, and the error says how to correct them.
func TestChrootInAnAddress(t *testing.T) {
	for root, want := range map[string]string{"": `"/app/lockgen" as Options.Root`, "/locks": `"/app/locks" as Options.Root`} {
		l := lockerOn(t, New([]string{"zk1:2181", "zk2:2181/app"}, Options{Root: root}))
		err := l.Do(t.Context(), nil, "k", func(context.Context) error { panic("ran") })
		require.ErrorIs(t, err, lock.ErrInvalid)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, l.Ping(t.Context()), want)
	}
	require.ErrorIs(t, New([]string{"zk1:2181,zk2:2181"}).Ping(t.Context()), lock.ErrInvalid)
}

func TestAddresses(t *testing.T) {
	all, err := addresses([]string{"zk1", "zk2:2182", "::1", "[::1]:2183"}, "/")
	require.NoError(t, err)
	require.Equal(t, []string{"zk1:2181", "zk2:2182", "[::1]:2181", "[::1]:2183"}, all)
}

func TestPing(t *testing.T) {
	t.Parallel()
	addr, root := testserver.ZooKeeper(t), newRoot(t)
	require.NoError(t, newBackend(t, root, addr).Ping(t.Context()))
	refused := backendWith(t, Options{Root: root, Auth: []Auth{{Scheme: "nosuch", Auth: []byte("x")}}}, addr)
	require.ErrorContains(t, refused.Ping(t.Context()), "Options.Auth")
	p := faultproxy.NewZooKeeper(t, addr)
	p.Hole(faultproxy.Replies)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, newBackend(t, root, p.Addr()).Ping(ctx), context.DeadlineExceeded)
	begin := time.Now()
	b := newBackend(t, root, addr)
	b.Attach()
	require.NoError(t, b.Close())
	require.ErrorIs(t, b.Ping(t.Context()), lock.ErrClosed)
	require.Less(t, time.Since(begin), second+meter.Since(begin))
}
