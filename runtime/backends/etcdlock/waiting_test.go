package etcdlock

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockgen/lockgen/internal/faultproxy"
	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// Once there is a session, an acquire and a release are one request each. A try on a key
// that is held is one request, which writes nothing.
func TestRequests(t *testing.T) {
	t.Parallel()
	f, key := &faults{}, newKey(t)
	l := lockerOn(t, withoutNotes{Backend: New(newClient(t, []string{shared(t)}, withFaults(f)), Options{AttemptTimeout: soon})})
	_, held := acquire(t, l, nil, key)
	require.NoError(t, finish(held))
	require.Equal(t, 1, f.count("LeaseGrant"))
	f.reset()
	for range 20 {
		_, held = acquire(t, l, nil, key)
		require.NoError(t, finish(held))
	}
	require.Equal(t, map[string]int{"Txn": 40}, f.counts)

	other := newLocker(t, shared(t))
	_, held = acquire(t, other, nil, key)
	f.reset()
	revision := func() int64 {
		resp, err := admin(t, shared(t)).Get(t.Context(), key+"/", clientv3.WithPrefix())
		require.NoError(t, err)
		return resp.Kvs[len(resp.Kvs)-1].ModRevision
	}
	before := revision()
	require.ErrorIs(t, rejected(t, l, try(), key), lock.ErrNotAcquired)
	require.Equal(t, before, revision())
	require.Equal(t, map[string]int{"Txn": 1}, f.counts)
	require.NoError(t, finish(held))

	// A wait takes one request to queue, one to watch, one to take the lock at the end, and
	// one each second in between.
	_, held = acquire(t, other, nil, key)
	f.reset()
	begin := time.Now()
	waiting := start(t.Context(), l, nil, key)
	queued(t, admin(t, shared(t)), key, 2)
	eventually(t, "a watch", func() bool { return f.count("watched") == 1 })
	require.NoError(t, finish(held))
	got := receive(t, "the lock", waiting)
	require.NoError(t, got.err)
	require.NoError(t, finish(got.held))
	require.LessOrEqual(t, f.count("Txn"), 3+int(got.at.Sub(begin)/time.Second))
	require.Zero(t, f.count("Range"))
	require.Equal(t, 1, f.count("watched"))
}

// S25: a call that gives up at any moment leaves the queue, and delays nobody.
func TestGivingUp(t *testing.T) {
	t.Parallel()
	key, c := newKey(t), admin(t, shared(t))
	one, two := newLocker(t, shared(t)), newLocker(t, shared(t))
	var all sync.WaitGroup
	for i := range 150 {
		l := one
		if i%2 == 0 {
			l = two
		}
		all.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i%50)*time.Millisecond)
			defer cancel()
			begin := time.Now()
			_, held, err := l.Acquire(ctx, nil, key)
			if err == nil {
				time.Sleep(time.Millisecond)
				if err := finish(held); err != nil {
					t.Error(err)
				}
				return
			}
			if took := time.Since(begin); took > 150*time.Millisecond+meter.Since(begin) {
				t.Errorf("gave up after %v", took)
			}
		})
	}
	all.Wait()
	nothingLeft(t, c, key)
	_, held := acquire(t, newLocker(t, shared(t)), try(), key)
	require.NoError(t, finish(held))
}

// S64: the session of a waiter ends. Its entry is never granted the lock then. The
// waiter continues with a new session, behind those that arrived meanwhile.
func TestSessionEndsWhileWaiting(t *testing.T) {
	t.Parallel()
	key, c := newKey(t), admin(t, shared(t))
	holder, l, later := newLocker(t, shared(t)), newLocker(t, shared(t)), newLocker(t, shared(t))
	_, held := acquire(t, holder, nil, key)
	waiting := start(t.Context(), l, ttl(1500*time.Millisecond), key)
	queued(t, c, key, 2)
	next := start(t.Context(), later, nil, key)
	queued(t, c, key, 3)
	resp, err := c.Get(t.Context(), key+"/", clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
	require.NoError(t, err)
	_, err = c.Revoke(t.Context(), clientv3.LeaseID(resp.Kvs[1].Lease))
	require.NoError(t, err)
	queued(t, c, key, 3) // the waiter is in the queue again
	require.NoError(t, finish(held))
	got := receive(t, "the lock", next)
	require.NoError(t, got.err)
	require.Empty(t, waiting)
	require.NoError(t, finish(got.held))
	got = receive(t, "the lock", waiting)
	require.NoError(t, got.err)
	require.NoError(t, finish(got.held))
}

// S64: the same if the waiter is cut off. Its acquire fails with ErrUnavailable.
func TestSilenceWhileWaiting(t *testing.T) {
	t.Parallel()
	proxy := faultproxy.NewStream(t, shared(t))
	key, c := newKey(t), admin(t, shared(t))
	_, held := acquire(t, newLocker(t, shared(t)), nil, key)
	b := New(newClient(t, []string{proxy.Addr()}))
	waiting := start(t.Context(), lockerOn(t, b), ttl(500*time.Millisecond), key)
	watching(t, b, key) // else the answer to the attempt might be lost, and the outcome would be unknown
	proxy.Hole(both)
	queued(t, c, key, 1)
	require.NoError(t, finish(held))
	_, held = acquire(t, newLocker(t, shared(t)), nil, key)
	got := receive(t, "an answer", waiting)
	require.ErrorIs(t, got.err, lock.ErrUnavailable)
	require.NoError(t, finish(held))
	proxy.Heal()
	nothingLeft(t, c, key)
}

// S69: the revision from which a waiter watches is compacted away, again and again.
func TestCompactionWhileWaiting(t *testing.T) {
	t.Parallel()
	server := testserver.StartEtcd(t)
	c := admin(t, server.Addr())
	compact := func() {
		resp, err := c.Put(t.Context(), "x", "")
		require.NoError(t, err)
		_, err = c.Compact(t.Context(), resp.Header.Revision)
		require.NoError(t, err)
	}
	one, two := newLocker(t, server.Addr()), newLocker(t, server.Addr())
	for range 5 {
		_, held := acquire(t, one, nil, "key")
		waiting := start(t.Context(), two, nil, "key")
		for range 50 {
			compact()
			time.Sleep(time.Millisecond)
		}
		begin := time.Now()
		require.NoError(t, finish(held))
		got := receive(t, "the lock", waiting)
		require.NoError(t, got.err)
		require.Less(t, got.at.Sub(begin), 500*time.Millisecond+meter.Since(begin))
		require.NoError(t, finish(got.held))
	}
	nothingLeft(t, c, "key")

	// A watch from a revision that certainly is compacted.
	b := newBackend(t, server.Addr())
	lease := taken(t, b, attempt("key", "A:1"))
	requireHeld(t, b, attempt("key", "B:1"))
	sub, err := b.Subscribe(t.Context(), attempt("key", "B:1"))
	require.NoError(t, err)
	compact()
	compact()
	e, err := b.enter(t.Context(), attempt("key", "B:1"))
	require.NoError(t, err)
	before := e.watch.key
	e.setWatch(nil)
	e.setWatch(&watch{session: e.session, key: before, from: 1})
	e.leave()
	receive(t, "a notice", sub.C())
	requireHeld(t, b, attempt("key", "B:1"))
	released(t, lease)
	receive(t, "a notice", sub.C())
	released(t, taken(t, b, attempt("key", "B:1")))
	sub.Close()
	sub.Close()
}

// S44: a subscription reports what happened between the attempt and the subscription. A subscriber that has
// made no attempt gets a notice at once.
func TestSubscription(t *testing.T) {
	t.Parallel()
	b, other, key := newBackend(t, shared(t)), newBackend(t, shared(t)), newKey(t)
	lease := taken(t, other, attempt(key, "A:1"))
	requireHeld(t, b, attempt(key, "B:1"))
	released(t, lease)
	sub, err := b.Subscribe(t.Context(), attempt(key, "B:1"))
	require.NoError(t, err)
	receive(t, "a notice of the release before the subscription", sub.C())
	lease = taken(t, b, attempt(key, "B:1"))
	onlooker, err := other.Subscribe(t.Context(), attempt(key, "C:1"))
	require.NoError(t, err)
	receive(t, "a notice without an attempt before", onlooker.C())
	released(t, lease)
	onlooker.Close()
	sub.Close()
	eventually(t, "nothing is left", func() bool {
		other.mu.Lock()
		defer other.mu.Unlock()
		return len(other.entries) == 0
	})
}

// withoutNotes is a Backend that does not implement driver.Noter, so that its Lockers write no note
// of who they are: such a note has an etcd lease of its own.
type withoutNotes struct {
	*Backend
	PutNote struct{}
}

// S58, G11: many locks share one etcd lease and one stream, and have no goroutine each. One
// request checks a hundred of them.
func TestManyHolds(t *testing.T) {
	const holds = 2_000
	server := testserver.StartEtcd(t)
	c, f := admin(t, server.Addr()), &faults{}
	l := lockerOn(t, withoutNotes{Backend: New(newClient(t, []string{server.Addr()}, withFaults(f)), Options{AttemptTimeout: soon})})
	const lease = 9 * time.Second
	_, extra := acquire(t, l, ttl(lease), "first")
	goroutines := runtime.NumGoroutine()
	ctxs, all := make([]context.Context, holds), make([]*lock.Hold, holds)
	var takers sync.WaitGroup
	for g := range 64 {
		takers.Go(func() {
			for i := g; i < holds; i += 64 {
				var err error
				if ctxs[i], all[i], err = l.Acquire(context.Background(), ttl(lease), "hold/"+strings.Repeat("x", i%7)+time.Duration(i).String()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	takers.Wait()
	eventually(t, "there is not a goroutine for each hold", func() bool { return runtime.NumGoroutine() < goroutines+50 })
	granted, err := c.Leases(t.Context())
	require.NoError(t, err)
	require.Len(t, granted.Leases, 1)
	eventually(t, "the first keep-alive", func() bool { return f.count("LeaseKeepAlive") > 0 })
	f.reset()
	time.Sleep(lease)
	for _, ctx := range ctxs {
		require.NoError(t, lock.Check(ctx))
	}
	require.Zero(t, f.count("LeaseKeepAlive"), "a new stream was opened")
	require.LessOrEqual(t, f.count("sent"), 4)
	require.LessOrEqual(t, f.count("Txn"), 3*holds/100*3/2)
	t.Logf("%d keep-alives and %d requests for %d holds in %v", f.count("sent"), f.count("Txn"), holds, lease)
	for g := range 64 {
		takers.Go(func() {
			for i := g; i < holds; i += 64 {
				if err := finish(all[i]); err != nil {
					t.Error(err)
				}
			}
		})
	}
	takers.Wait()
	require.NoError(t, finish(extra))
}

// S64: a waiter is notified of the end of its session, because its place is gone.
func TestEndOfTheSessionIsTold(t *testing.T) {
	t.Parallel()
	b, key := newBackend(t, shared(t)), newKey(t)
	holder := attempt(key, "A:1")
	holder.TTL = time.Minute
	taken(t, b, holder)
	for range 5 {
		a := attempt(key, newID("B"))
		requireHeld(t, b, a)
		sub, err := b.Subscribe(t.Context(), a)
		require.NoError(t, err)
		require.Empty(t, sub.C())
		b.sessionsOf("B")[0].End(errSessionEnded)
		receive(t, "a notice", sub.C())
		sub.Close()
	}
}

// G9: a subscription that begins at the moment of a notice does not miss it.
func TestSubscribeBesideANotice(t *testing.T) {
	t.Parallel()
	b, key := newBackend(t, shared(t)), newKey(t)
	holder := attempt(key, "A:1")
	holder.TTL = time.Minute
	taken(t, b, holder)
	for range 50 {
		a := attempt(key, newID("B"))
		requireHeld(t, b, a)
		b.mu.Lock()
		e := b.entries[engine.Place{Process: "B", Key: key}]
		w := e.watch
		b.mu.Unlock()
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for last := false; !last; {
					b.mu.Lock()
					last = e.watch == nil
					b.mu.Unlock()
					sub, err := b.Subscribe(t.Context(), a)
					if err != nil {
						t.Error(err)
						return
					}
					all.Go(func() {
						receive(t, "a notice", sub.C())
						sub.Close()
					})
				}
			})
		}
		w.cancel()
		all.Wait()
	}
}

// After a lost lease an entry of the same Locker may still be at the server. An acquisition behind it has no
// place of its own. It is notified when that entry is deleted, and does not wait for its next poll.
func TestWaitBehindOnesOwn(t *testing.T) {
	t.Parallel()
	b, key := newBackend(t, shared(t)), newKey(t)
	l, err := b.Acquire(t.Context(), attempt(key, "A:1"))
	require.NoError(t, err)
	a := attempt(key, "A:2")
	a.Queue = true
	_, err = b.Acquire(t.Context(), a)
	require.ErrorAs(t, err, new(*driver.HeldError))
	s, err := b.Subscribe(t.Context(), a)
	require.NoError(t, err)
	defer s.Close()
	<-s.C() // a notice at once, because nothing is watched yet
	require.NoError(t, l.Release(t.Context(), 0))
	select {
	case <-s.C():
	case <-time.After(soon):
		require.Fail(t, "the acquisition was not notified")
	}
	next, err := b.Acquire(t.Context(), a)
	require.NoError(t, err)
	require.NoError(t, next.Release(t.Context(), 0))
}
