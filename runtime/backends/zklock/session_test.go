package zklock

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/internal/faultproxy"
	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

// An impossible TickTime counts as no TickTime. With a tick that is too short, a session that counts as
// proved may already be over.
func TestNegativeTickTime(t *testing.T) {
	t.Parallel()
	b := backendWith(t, Options{Root: newRoot(t), TickTime: -time.Hour}, testserver.ZooKeeper(t))
	lim, err := b.serverLimits(t.Context())
	require.NoError(t, err)
	require.Equal(t, lim.least/2, lim.tick)
}

// S70, S71: a holder that is cut off loses its lock by its own clock, before another client
// gets it. When the network works again, the old holder holds nothing. A new acquire gets a new
// session and a higher token.
func TestHolderCutOff(t *testing.T) {
	t.Parallel()
	addr, root := testserver.ZooKeeper(t), newRoot(t)
	p := faultproxy.NewZooKeeper(t, addr)
	l, other := newLocker(t, root, p.Addr()), newLocker(t, root, addr)
	ctx, finish := enter(t, l, ttl(2*second), "k")
	old, _ := lock.Token(ctx)
	cut := time.Now()
	p.Hole(faultproxy.Requests | faultproxy.Replies)

	next, leave := enter(t, other, ttl(20*second), "k")
	taken := time.Now()
	require.ErrorIs(t, lock.Check(ctx), lock.ErrLost, "another client has the lock")
	receive(t, "the end of the holder's context", ctx.Done())
	require.Less(t, time.Since(taken), 20*time.Millisecond+meter.Since(cut), "the context must have ended before, unless the machine was late")
	require.ErrorIs(t, context.Cause(ctx), lock.ErrLost)
	token, _ := lock.Token(next)
	require.Greater(t, token, old)
	p.Heal()
	p.Reset()
	time.Sleep(second)
	require.Error(t, lock.Check(ctx), "a new session must not revive the old hold")
	require.ErrorIs(t, finish(), lock.ErrLost)
	require.NoError(t, lock.Check(next), "the old holder's release must not free the next holder's lock")
	require.NoError(t, leave())
	require.NoError(t, l.Do(t.Context(), ttl(2*second), "k", func(ctx context.Context) error {
		n, _ := lock.Token(ctx)
		require.Greater(t, n, token)
		return nil
	}))
}

// S70: if a connection is lost and the client reconnects in time, no lock is lost.
func TestDisconnectedIsNotLost(t *testing.T) {
	t.Parallel()
	addr, root := testserver.ZooKeeper(t), newRoot(t)
	p := faultproxy.NewZooKeeper(t, addr)
	l := newLocker(t, root, p.Addr())
	ctx, finish := enter(t, l, ttl(3*second), "k")
	for range 8 {
		p.Reset()
		time.Sleep(500 * time.Millisecond)
	}
	require.NoError(t, lock.Check(ctx))
	require.NoError(t, finish())
}

// When a session ends, all its holders lose their locks at once, not only at their deadlines.
func TestExpiryIsToldAtOnce(t *testing.T) {
	t.Parallel()
	addr, root := testserver.ZooKeeper(t), newRoot(t)
	b := New([]string{addr}, Options{Root: root})
	l := lockerOn(t, b)
	var ctxs []context.Context
	for i := range 5 {
		ctx, finish := enter(t, l, ttl(20*second), fmt.Sprint("k", i))
		defer func() { require.ErrorIs(t, finish(), lock.ErrLost) }()
		ctxs = append(ctxs, ctx)
	}
	expire(t, b, addr)
	for _, ctx := range ctxs {
		receive(t, "the loss", ctx.Done())
		require.ErrorIs(t, context.Cause(ctx), lock.ErrLost)
	}
	require.NoError(t, l.Do(t.Context(), ttl(20*second), "k0", func(context.Context) error { return nil }), "with a new session")
}

// expire ends the sessions of b at the server: another client that knows their
// passwords takes each over and closes it.
func expire(t *testing.T, b *Backend, addr string) {
	t.Helper()
	for _, s := range sessionsOf(b) {
		// The client may take its session back before the close request. Then the close does not end the session.
		for s.endCause() == nil {
			takeAway(t, s, addr)
			time.Sleep(100 * time.Millisecond)
		}
	}
}

func sessionsOf(b *Backend) []*session { return b.sessions.All() }

func takeAway(t *testing.T, s *session, addr string) {
	t.Helper()
	id, password := s.client.Session()
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer conn.Close()
	hello := binary.BigEndian.AppendUint32(nil, 0) // the protocol
	hello = binary.BigEndian.AppendUint64(hello, 0)
	hello = binary.BigEndian.AppendUint32(hello, 10_000)
	hello = binary.BigEndian.AppendUint64(hello, uint64(id))
	hello = append(binary.BigEndian.AppendUint32(hello, uint32(len(password))), password...)
	// One write for both requests, because the client may take its session back in between.
	goodbye := binary.BigEndian.AppendUint64(nil, 1<<32|0xffff_fff5) // request 1: close
	_, err = conn.Write(slices.Concat(framed(hello), framed(goodbye)))
	require.NoError(t, err)
	_, _ = io.ReadAll(conn) // returns when the server has ended the connection
}

func framed(request []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(request))), request...)
}

// S64: a waiter whose session expires is not granted the lock because of that. It continues to
// wait with another session.
func TestExpiryWhileWaiting(t *testing.T) {
	t.Parallel()
	addr, root := testserver.ZooKeeper(t), newRoot(t)
	p := faultproxy.NewZooKeeper(t, addr)
	conn, holder := admin(t, addr), newLocker(t, root, addr)
	ctx, leave := enter(t, holder, ttl(5*second), "k")
	b := New([]string{p.Addr()}, Options{Root: root})
	waiter := lockerOn(t, b)
	var inside atomic.Bool
	done := make(chan error, 1)
	go func() {
		done <- waiter.Do(context.WithoutCancel(t.Context()), ttl(second), "k", func(context.Context) error {
			inside.Store(true)
			return nil
		})
	}()
	eventually(t, soon, "the waiter is refused", func() bool { return refusals(b) == 1 })
	p.Hole(faultproxy.Requests | faultproxy.Replies)
	eventually(t, soon, "the waiter's node is gone", func() bool { return len(contenders(t, conn, root+"/k")) == 1 })
	p.Heal()
	p.Reset()
	eventually(t, soon, "the waiter is in the queue again", func() bool { return len(contenders(t, conn, root+"/k")) == 2 })
	require.False(t, inside.Load())
	require.Empty(t, done)
	require.NoError(t, lock.Check(ctx))
	require.NoError(t, leave())
	require.NoError(t, receive(t, "the waiter's turn", done))
	eventually(t, soon, "no node is left", func() bool { return len(contenders(t, conn, root+"/k")) == 0 })
}

// S31, S54: if somebody deletes a lease's node, the lease ends, and nothing creates the node again.
func TestNodeDeleted(t *testing.T) {
	t.Parallel()
	addr, root := testserver.ZooKeeper(t), newRoot(t)
	conn, c := admin(t, addr), newClient(t, newBackend(t, root, addr))
	l := c.take(c.attempt("k", 20*second))
	told := make(chan struct{}, 1)
	l.(driver.LossNotifier).NotifyLoss(func() { told <- struct{}{} })
	require.NoError(t, l.Renew(t.Context(), 20*second))
	require.NoError(t, conn.Delete(root+"/k/"+contenders(t, conn, root+"/k")[0], -1))
	receive(t, "the loss", told)
	require.LessOrEqual(t, l.Deadline().Left(), time.Duration(0))
	require.ErrorIs(t, l.Renew(t.Context(), 20*second), lock.ErrLost)
	require.Empty(t, contenders(t, conn, root+"/k"))
	require.ErrorIs(t, l.Release(t.Context(), first(l)), lock.ErrLost)

	// If the node of a waiter is deleted too, the waiter must not count as the first without a node.
	holder := c.take(c.attempt("k", 20*second))
	other := newClient(t, c.Backend)
	waiting := other.waiting("k", 20*second)
	other.held(waiting)
	for _, name := range contenders(t, conn, root+"/k") {
		require.NoError(t, conn.Delete(root+"/k/"+name, -1))
	}
	eventually(t, soon, "the client has the notices of both", func() bool { return len(watchedBelow(c.Backend, root+"/k")) == 0 })
	eventually(t, soon, "an attempt with a new node succeeds", func() bool {
		var err error
		l, err = other.Acquire(t.Context(), waiting)
		return err == nil
	})
	require.Len(t, contenders(t, conn, root+"/k"), 1)
	require.ErrorIs(t, holder.Release(t.Context(), first(holder)), lock.ErrLost)
	free(t, l)
}

// S33, S24: while a server hangs, each call returns within 100 ms after its context ends,
// and each holder loses its lock at its deadline.
func TestServerHangs(t *testing.T) {
	t.Parallel()
	server, root := testserver.StartZooKeeper(t), newRoot(t)
	l := newLocker(t, root, server.Addr())
	ctx, finish := enter(t, l, ttl(2*second), "k")
	server.Stop()
	for _, key := range []string{"k2", "k"} {
		soonOver, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		begin := time.Now()
		_, _, err := l.Acquire(soonOver, ttl(2*second), key)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Less(t, time.Since(begin), 300*time.Millisecond+meter.Since(begin))
		cancel()
	}
	receive(t, "the loss", ctx.Done())
	require.ErrorIs(t, context.Cause(ctx), lock.ErrLost)
	server.Cont()
	require.ErrorIs(t, finish(), lock.ErrLost)
	require.NoError(t, l.Do(t.Context(), ttl(20*second), "k", func(context.Context) error { return nil }))
}

// S29: the servers keep sessions and transactions on disk. A restart in time
// loses no lock, and tokens continue to rise.
func TestRestart(t *testing.T) {
	t.Parallel()
	server, root := testserver.StartZooKeeper(t), newRoot(t)
	l, other := newLocker(t, root, server.Addr()), newLocker(t, root, server.Addr())
	ctx, finish := enter(t, l, ttl(20*second), "k")
	token, _ := lock.Token(ctx)
	server.Kill()
	server.Restart()
	require.NoError(t, lock.Check(ctx))
	err := other.Do(t.Context(), &lock.Policy{TTL: 20 * second, Try: true}, "k", func(context.Context) error { panic("both") })
	require.True(t, errors.Is(err, lock.ErrNotAcquired), "%v", err)
	require.NoError(t, finish())
	require.NoError(t, other.Do(t.Context(), ttl(20*second), "k", func(ctx context.Context) error {
		n, _ := lock.Token(ctx)
		require.Greater(t, n, token)
		return nil
	}))
}

// A lease that nobody renews ends, although its session continues.
func TestFixedLease(t *testing.T) {
	t.Parallel()
	addr, root := testserver.ZooKeeper(t), newRoot(t)
	l := newLocker(t, root, addr)
	begin := time.Now()
	ctx, finish := enter(t, l, &lock.Policy{TTL: second, NoRenew: true}, "k")
	_, other := enter(t, newLocker(t, root, addr), ttl(20*second), "k")
	require.ErrorIs(t, lock.Check(ctx), lock.ErrLost)
	require.Greater(t, time.Since(begin), 900*time.Millisecond)
	require.ErrorIs(t, finish(), lock.ErrLost)
	require.NoError(t, other())
}

// The client library's default logger belongs to the whole process. Nothing of ours may be logged to it.
func TestSilence(t *testing.T) {
	var said recorder
	old := zk.DefaultLogger
	zk.DefaultLogger = &said
	defer func() { zk.DefaultLogger = old }()
	server := testserver.StartZooKeeper(t)
	b := New([]string{server.Addr()}, Options{Root: newRoot(t)})
	c := newClient(t, b)
	free(t, c.take(c.attempt("k", second)))
	server.Kill()
	time.Sleep(second / 2)
	require.NoError(t, b.Close())
	require.Empty(t, said.lines.Load())
}

type recorder struct{ lines atomic.Int64 }

func (r *recorder) Printf(string, ...any) { r.lines.Add(1) }

// If no server runs at the address, the call fails at once, and the error names the address.
func TestAbsentServer(t *testing.T) {
	t.Parallel()
	addr := net.JoinHostPort("127.0.0.1", fmt.Sprint(testserver.Port(t)))
	l := newLocker(t, newRoot(t), addr)
	begin := time.Now()
	err := l.Do(t.Context(), nil, "k", func(context.Context) error { panic("ran") })
	require.ErrorIs(t, err, lock.ErrUnavailable)
	require.ErrorContains(t, err, addr)
	require.ErrorContains(t, err, "refused")
	require.Less(t, time.Since(begin), second+meter.Since(begin))
}

// A ttl that the server does not grant is refused, and the error names the range.
func TestLengthsOutsideTheServersRange(t *testing.T) {
	t.Parallel()
	server := testserver.StartZooKeeper(t, "minSessionTimeout=1000", "maxSessionTimeout=10000")
	l := newLocker(t, newRoot(t), server.Addr())
	longest := longestLease(500*time.Millisecond, 10*second)
	for _, d := range []time.Duration{10 * time.Millisecond, 999 * time.Millisecond, longest + time.Millisecond, 30 * second, 1000 * time.Hour} {
		err := l.Do(t.Context(), ttl(d), "k", func(context.Context) error { panic("ran") })
		require.ErrorIs(t, err, lock.ErrInvalid, "%v", d)
		require.ErrorContains(t, err, "from 1s to ")
		if d > 2*second {
			require.ErrorContains(t, err, longest.String())
		}
	}
	for _, d := range []time.Duration{second, 3 * second, longest} {
		require.NoError(t, l.Do(t.Context(), ttl(d), "k", func(context.Context) error { return nil }), "%v", d)
	}
}

// The least rights are enough: create, delete and read for one user, and nothing for others.
func TestAuthentication(t *testing.T) {
	t.Parallel()
	addr, root := testserver.ZooKeeper(t), newRoot(t)
	acl := zk.DigestACL(zk.PermCreate|zk.PermDelete|zk.PermRead, "locker", "secret")
	conn := admin(t, addr)
	_, err := conn.Create(root, nil, zk.FlagPersistent, acl)
	require.NoError(t, err)
	user := Options{Root: root, ACL: acl, Auth: []Auth{{Scheme: "digest", Auth: []byte("locker:secret")}}}
	l, other := lockerOn(t, New([]string{addr}, user)), lockerOn(t, New([]string{addr}, user))
	n := 0
	done := make(chan error, 4)
	for i := range cap(done) {
		go func() {
			var err error
			for range 10 {
				err = errors.Join(err, []*lock.Locker{l, other}[i%2].Do(t.Context(), ttl(20*second), "k", func(context.Context) error { n++; return nil }))
			}
			done <- err
		}()
	}
	for range cap(done) {
		require.NoError(t, receive(t, "the critical sections", done))
	}
	require.Equal(t, 40, n)

	for _, wrong := range []Options{
		{Root: root},
		{Root: root, Auth: []Auth{{Scheme: "digest", Auth: []byte("locker:guess")}}},
		{Root: root, Auth: []Auth{{Scheme: "nosuch", Auth: []byte("x")}}},
	} {
		begin := time.Now()
		err := lockerOn(t, New([]string{addr}, wrong)).Do(t.Context(), ttl(second), "k", func(context.Context) error { panic("ran") })
		require.ErrorIs(t, err, lock.ErrUnavailable)
		require.ErrorContains(t, err, "Options.Auth")
		require.False(t, strings.Contains(err.Error(), "guess"))
		require.Less(t, time.Since(begin), 2*second+meter.Since(begin))
	}
}

// Close does not wait for a server that has not yet answered which sessions it grants.
func TestCloseBeforeTheFirstAnswer(t *testing.T) {
	t.Parallel()
	p := faultproxy.NewZooKeeper(t, testserver.ZooKeeper(t))
	p.Hole(faultproxy.Requests)
	b := New([]string{p.Addr()}, Options{Root: newRoot(t)})
	c := newClient(t, b)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := c.Acquire(ctx, c.attempt("k", long))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	begin := time.Now()
	require.NoError(t, b.Close())
	require.Less(t, time.Since(begin), 2*time.Second+meter.Since(begin))
}
