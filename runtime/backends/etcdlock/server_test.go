package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/internal/faultproxy"
	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// If no server runs at the address, each acquire fails at once and says so, whatever the policy.
func TestServerAbsent(t *testing.T) {
	t.Parallel()
	l := newLocker(t, fmt.Sprintf("127.0.0.1:%d", testserver.Port(t)))
	for _, p := range []*lock.Policy{nil, try(), ttl(time.Second)} {
		begin := time.Now()
		err := rejected(t, l, p, "key")
		require.ErrorIs(t, err, lock.ErrUnavailable)
		require.NotErrorIs(t, err, lock.ErrIndeterminate)
		require.ErrorContains(t, err, "connection refused")
		require.ErrorContains(t, err, "127.0.0.1")
		require.Less(t, time.Since(begin), 500*time.Millisecond+meter.Since(begin))
	}
}

// If the client of a Locker was closed, an acquire fails at once and says so.
func TestClientClosed(t *testing.T) {
	t.Parallel()
	client := newClient(t, []string{shared(t)})
	l, key := lockerOn(t, New(client)), newKey(t)
	_, held := acquire(t, l, ttl(time.Second), key)
	require.NoError(t, finish(held))
	require.NoError(t, client.Close())
	begin := time.Now()
	err := rejected(t, l, ttl(time.Second), key)
	require.ErrorIs(t, err, lock.ErrUnavailable)
	require.NotErrorIs(t, err, lock.ErrIndeterminate)
	require.ErrorContains(t, err, "the client was closed")
	require.Less(t, time.Since(begin), 500*time.Millisecond+meter.Since(begin))
}

// A server that comes back is found at once, and a lock survives the restart.
func TestServerComesBack(t *testing.T) {
	t.Parallel()
	server := testserver.StartEtcd(t)
	b := New(newClient(t, []string{server.Addr()}))
	l := lockerOn(t, b)
	ctx, held := acquire(t, l, ttl(9*time.Second), "held")
	s := b.sessions.All()[0]
	before := token(t, ctx)
	server.Kill()
	receive(t, "a keep-alive that fails", s.Ask())
	for range 5 {
		rejected(t, l, try(), "key")
	}
	server.Restart()
	begin := time.Now()
	inner, second := acquire(t, l, nil, "key")
	require.Less(t, time.Since(begin), 500*time.Millisecond+meter.Since(begin))
	require.Greater(t, token(t, inner), before)
	require.NoError(t, finish(second))
	deadline := s.Deadline()
	eventually(t, "keep-alives succeed again", func() bool { return deadline.Before(s.Deadline()) })
	require.NoError(t, lock.Check(ctx))
	require.NoError(t, finish(held))
}

// S68: after a restart etcd counts each lease from its beginning again. The lock of a dead process is
// free a ttl after the restart.
func TestRestartResetsLeases(t *testing.T) {
	t.Parallel()
	server := testserver.StartEtcd(t)
	proxy := faultproxy.NewStream(t, server.Addr())
	ctx, held := acquire(t, newLocker(t, proxy.Addr()), ttl(1500*time.Millisecond), "key")
	before := token(t, ctx)
	proxy.Hole(both)
	proxy.Refuse()
	time.Sleep(1200 * time.Millisecond)
	server.Restart()
	begin := time.Now()
	requireLost(t, ctx, begin, 2*time.Second)
	inner, second := acquire(t, newLocker(t, server.Addr()), nil, "key")
	require.Less(t, time.Since(begin), 3500*time.Millisecond+meter.Since(begin))
	require.Greater(t, token(t, inner), before)
	require.ErrorIs(t, finish(held), lock.ErrLost)
	require.NoError(t, finish(second))
}

// N8, S24: each call returns within 100 ms after its context ended, whatever the server
// does.
func TestCallsEndWithTheirContext(t *testing.T) {
	t.Parallel()
	frozen := testserver.StartEtcd(t)
	for name, fault := range map[string]func(*faultproxy.Stream){
		"SIGSTOP":    func(*faultproxy.Stream) { frozen.Stop() },
		"hole":       func(p *faultproxy.Stream) { p.Hole(both) },
		"no replies": func(p *faultproxy.Stream) { p.Hole(faultproxy.Replies) },
		"refused":    func(p *faultproxy.Stream) { p.Refuse(); p.Reset() },
	} {
		server := shared(t)
		if name == "SIGSTOP" {
			server = frozen.Addr()
		}
		proxy, key := faultproxy.NewStream(t, server), newKey(t)
		used, fresh := newBackend(t, proxy.Addr()), newBackend(t, proxy.Addr())
		lease := taken(t, used, attempt(key, "A:1"))
		requireHeld(t, used, attempt(key, "B:1"))
		waiting := attempt(key, "B:1")
		fault(proxy)
		for what, call := range map[string]func(context.Context) error{
			"acquire":            func(ctx context.Context) error { _, err := used.Acquire(ctx, attempt(key, newID("A"))); return err },
			"acquire, waiting":   func(ctx context.Context) error { _, err := used.Acquire(ctx, waiting); return err },
			"acquire, elsewhere": func(ctx context.Context) error { _, err := fresh.Acquire(ctx, attempt(key, newID("F"))); return err },
			"undo": func(ctx context.Context) error {
				a := attempt(key, "B:1")
				a.MayHaveRun = true
				return used.Undo(ctx, a)
			},
			"renew":   func(ctx context.Context) error { return lease.Renew(ctx, time.Second) },
			"release": func(ctx context.Context) error { return lease.Release(ctx, 0) },
		} {
			ctx, cancel := context.WithCancel(t.Context())
			end := time.Now().Add(50 * time.Millisecond)
			timer := time.AfterFunc(50*time.Millisecond, cancel)
			err := call(ctx)
			if late := time.Since(end); late > 100*time.Millisecond+meter.Since(end) {
				t.Errorf("%s, %s: returned %v after its context ended", name, what, late)
			}
			require.Error(t, err, "%s, %s", name, what)
			require.NotErrorIs(t, err, lock.ErrLost, "%s, %s", name, what)
			timer.Stop()
			cancel()
		}
		proxy.Heal()
		proxy.Accept()
		if name == "SIGSTOP" {
			frozen.Cont()
		}
		// A call may fail before a slow machine has connected again. A Locker also repeats it.
		eventually(t, "the lock is released", func() bool { return lease.Release(t.Context(), 0) == nil })
	}
}

// S33: a call to a silent server ends by the attempt timeout, even if its context does not end.
func TestServerHangs(t *testing.T) {
	t.Parallel()
	server := testserver.StartEtcd(t)
	b := newBackend(t, server.Addr())
	released(t, taken(t, b, attempt("key", "A:1")))
	server.Stop()
	b.options.AttemptTimeout = 100 * time.Millisecond
	a := attempt("key", "A:2")
	_, err := b.Acquire(t.Context(), a)
	require.ErrorIs(t, err, lock.ErrIndeterminate)
	b.options.AttemptTimeout = soon
	server.Cont()
	require.NoError(t, b.Undo(t.Context(), a))
	nothingLeft(t, admin(t, server.Addr()), "key")
}

// While etcd does not answer, no acquire reports that the key is held. The undo of the first acquire,
// which had no answer, keeps later acquires from sending anything.
func TestServerHangsAndNobodyHoldsTheKey(t *testing.T) {
	t.Parallel()
	server := testserver.StartEtcd(t)
	l := newLocker(t, server.Addr())
	_, held := acquire(t, l, nil, "key")
	require.NoError(t, finish(held))
	server.Stop()
	defer server.Cont()
	for range 3 {
		err := rejected(t, l, &lock.Policy{Wait: 200 * time.Millisecond}, "key")
		require.NotErrorIs(t, err, lock.ErrNotAcquired)
		ctx, cancel := contextFor(t, 200*time.Millisecond)
		_, _, err = l.Acquire(ctx, try(), "key")
		cancel()
		require.NotErrorIs(t, err, lock.ErrNotAcquired)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
}

// Another call of the same Locker has the turn of the key. The Backend then returns an error that does not say
// who holds the key. The Locker tells a waiting call what the last answer said.
func TestAcquireWithoutTheTurn(t *testing.T) {
	t.Parallel()
	b, key := New(newClient(t, []string{shared(t)})), newKey(t)
	_, theirs := acquire(t, newLocker(t, shared(t)), nil, key)
	l := lockerOn(t, b)
	waits, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	waiting := start(waits, l, nil, key)
	watching(t, b, key)
	b.mu.Lock()
	places := slices.Collect(maps.Keys(b.entries))
	b.mu.Unlock()
	require.Len(t, places, 1)
	leave, err := b.turns.Enter(t.Context(), places[0])
	require.NoError(t, err)
	defer leave()
	ctx, cancel := contextFor(t, 20*time.Millisecond)
	defer cancel()
	_, err = b.Acquire(ctx, asTry(attempt(key, places[0].Process+":9")))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Nil(t, engine.HeldBy(err))
	time.AfterFunc(1500*time.Millisecond, giveUp) // the waiting call has made another attempt by then
	require.ErrorIs(t, receive(t, "the end of the wait", waiting).err, lock.ErrNotAcquired)
	require.NoError(t, finish(theirs))
}

// Close ends in time even if the server does not answer.
func TestCloseWithAHungServer(t *testing.T) {
	t.Parallel()
	server := testserver.StartEtcd(t)
	l, other := lock.New(New(newClient(t, []string{server.Addr()})), nil), newLocker(t, server.Addr())
	_, mine := acquire(t, l, ttl(time.Second), "mine")
	_, held := acquire(t, other, nil, "key")
	waiting := start(t.Context(), l, nil, "key")
	queued(t, admin(t, server.Addr()), "key", 2)
	server.Stop()
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	begin := time.Now()
	_ = l.Close(short)
	require.Less(t, time.Since(begin), 2*time.Second+meter.Since(begin)) // the clean-up has a second, the session half of one
	require.Error(t, receive(t, "an answer", waiting).err)
	require.ErrorIs(t, finish(mine), lock.ErrLost)
	server.Cont()
	require.NoError(t, finish(held))
}

// silence is longer than an answer counts that says that another holds the key.
const silence = 3300 * time.Millisecond

// A wait that ends while etcd is silent does not report that the lock is held.
func TestWaitEndsInSilence(t *testing.T) {
	t.Parallel()
	proxy, key := faultproxy.NewStream(t, shared(t)), newKey(t)
	_, held := acquire(t, newLocker(t, shared(t)), nil, key)
	defer held.Release(nil)
	l, done := newLocker(t, proxy.Addr()), make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		_, _, err := l.Acquire(ctx, nil, key)
		done <- err
	}()
	eventually(t, "the call waits at etcd", func() bool {
		waiting := l.Snapshot().Waiters
		return len(waiting) == 1 && waiting[0].AtEngine
	})
	proxy.Hole(both)
	time.Sleep(silence)
	cancel()
	err := receive(t, "the end of the wait", done)
	require.NotErrorIs(t, err, lock.ErrNotAcquired)
	require.True(t, errors.Is(err, lock.ErrUnavailable) || errors.Is(err, lock.ErrIndeterminate), "%v", err)
	proxy.Heal()
}
