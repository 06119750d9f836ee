package zklock

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
)

// TestEnsemble uses one ensemble for all its subtests, because each ensemble runs three more JVMs.
func TestEnsemble(t *testing.T) {
	e := testserver.StartEnsemble(t)
	t.Run("MembersKilled", func(t *testing.T) { membersKilled(t, e) })
	t.Run("MemberHangs", func(t *testing.T) { memberHangs(t, e) })
	t.Run("Minority", func(t *testing.T) { minority(t, e) })
	t.Run("ElectionsUnderLoad", func(t *testing.T) { electionsUnderLoad(t, e) })
}

// S67, S68: whichever member is killed, the others keep the session. The lock stays
// held, and tokens rise across the election.
func membersKilled(t *testing.T, e *testserver.Ensemble) {
	root := newRoot(t)
	l, other := newLocker(t, root, e.Addrs()...), newLocker(t, root, e.Addrs()...)
	highest := uint64(0)
	for _, gone := range []func() *testserver.Instance{
		func() *testserver.Instance { return e.Followers(t.Context())[0] },
		func() *testserver.Instance { return e.Leader(t.Context()) },
	} {
		ctx, finish := enter(t, l, ttl(10*second), "k")
		token, _ := lock.Token(ctx)
		require.Greater(t, token, highest)
		highest = token
		member := gone()
		member.Kill()
		time.Sleep(4 * second)
		require.NoError(t, lock.Check(ctx), "a majority still runs")
		eventually(t, soon, "the other Locker is refused", func() bool { // possible once there is a leader
			err := other.Do(t.Context(), &lock.Policy{TTL: 10 * second, Try: true}, "k", func(context.Context) error { panic("both") })
			require.Error(t, err)
			return errors.Is(err, lock.ErrNotAcquired)
		})
		require.NoError(t, finish())
		member.Restart()
		e.AwaitReady(t.Context())
	}
	require.NoError(t, other.Do(t.Context(), ttl(10*second), "k", func(ctx context.Context) error {
		token, _ := lock.Token(ctx)
		require.Greater(t, token, highest)
		return nil
	}))
}

// S33: the clients of a member that hangs lose their connections, but not their locks.
func memberHangs(t *testing.T, e *testserver.Ensemble) {
	root := newRoot(t)
	var lockers []*lock.Locker
	var ctxs []context.Context
	for range 6 { // enough to connect to all members
		l := newLocker(t, root, e.Addrs()...)
		ctx, finish := enter(t, l, ttl(10*second), string(rune('a'+len(lockers))))
		defer func() { require.NoError(t, finish()) }()
		lockers, ctxs = append(lockers, l), append(ctxs, ctx)
	}
	hung := e.Followers(t.Context())[0]
	hung.Stop()
	defer func() {
		hung.Cont()
		e.AwaitReady(context.WithoutCancel(t.Context()))
	}()
	time.Sleep(14 * second)
	for _, ctx := range ctxs {
		require.NoError(t, lock.Check(ctx))
	}
}

// S67: without a majority nothing is confirmed. Holders lose their locks by their own
// deadline, and acquires fail when their contexts end. Afterwards all works again.
func minority(t *testing.T, e *testserver.Ensemble) {
	root := newRoot(t)
	l, other := newLocker(t, root, e.Addrs()...), newLocker(t, root, e.Addrs()...)
	require.NoError(t, other.Do(t.Context(), ttl(4*second), "k2", func(context.Context) error { return nil }))
	ctx, finish := enter(t, l, ttl(4*second), "k")
	leader, follower := e.Leader(t.Context()), e.Followers(t.Context())[0]
	begin := time.Now()
	leader.Stop()
	follower.Stop()
	soonOver, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	err := other.Do(soonOver, ttl(4*second), "k2", func(context.Context) error { panic("ran") })
	require.Error(t, err)
	require.True(t, errors.Is(err, lock.ErrUnavailable) || errors.Is(err, lock.ErrIndeterminate), "%v", err)
	receive(t, "the loss", ctx.Done())
	require.ErrorIs(t, context.Cause(ctx), lock.ErrLost)
	require.Less(t, time.Since(begin), classOf(4*second, 200*time.Millisecond, 0).timeout+meter.Since(begin), "the last proof is the limit")
	// Kill the leader, do not let it continue: its followers may find it again before it notices that
	// they were gone. A leader of ZooKeeper 3.8.0 may then lead without ever committing anything. The
	// transaction that was under way when it froze gets no acknowledgement, and all others wait behind it.
	leader.Kill()
	follower.Cont()
	require.ErrorIs(t, finish(), lock.ErrLost)
	for _, key := range []string{"k", "k2"} {
		eventually(t, 3*soon, key+" can be acquired again", func() bool {
			return other.Do(t.Context(), &lock.Policy{TTL: 4 * second, Wait: second}, key, func(context.Context) error { return nil }) == nil
		})
	}
	leader.Restart()
	e.AwaitReady(t.Context())
}

// Elections under load: critical sections never overlap, tokens rise, and no node is left.
func electionsUnderLoad(t *testing.T, e *testserver.Ensemble) {
	root := newRoot(t)
	var highest uint64 // guarded by the lock under test
	n := 0             // guarded by the lock under test
	end := time.Now().Add(8 * second)
	var all sync.WaitGroup
	for range 3 {
		l := newLocker(t, root, e.Addrs()...)
		for range 2 {
			all.Go(func() {
				for time.Now().Before(end) {
					_ = l.Do(context.Background(), &lock.Policy{TTL: 6 * second, Wait: 5 * second}, "k", func(ctx context.Context) error {
						token, _ := lock.Token(ctx)
						if token <= highest {
							t.Errorf("token %d after token %d", token, highest)
						}
						highest = token
						n++
						return nil
					})
				}
			})
		}
	}
	for range 2 {
		time.Sleep(2 * second)
		leader := e.Leader(t.Context())
		leader.Kill()
		time.Sleep(second)
		leader.Restart()
	}
	all.Wait()
	e.AwaitReady(t.Context())
	require.Greater(t, n, 10)
	conn := admin(t, e.Addrs()...)
	eventually(t, 2*soon, "the queue is empty", func() bool { return len(contenders(t, conn, root+"/k")) == 0 })
}
