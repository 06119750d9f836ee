package consullock

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/backendtest"
	"github.com/lockgen/lockgen/runtime/driver"
)

// long is the lease of locks that are given: confirmed, it is told from a brief one.
const long = 20 * time.Second

func wish(key string) *driver.Acquisition {
	return &driver.Acquisition{Key: key, ID: newID(), TTL: long, Tokens: 1, Queue: true}
}

// next returns a later acquisition of a's process.
func next(a *driver.Acquisition) *driver.Acquisition {
	return &driver.Acquisition{Key: a.Key, ID: a.ID + "1", TTL: long, Tokens: 1, Queue: true}
}

// giver is a backend whose releases always give the lock on.
func giver(t *testing.T, addr string, change ...func(*api.Config)) *Backend {
	t.Helper()
	b := newBackend(t, addr, change...)
	b.plainly = func() bool { return false }
	return b
}

// waits has b wait for a, which another holds, as a Locker does.
func waits(t *testing.T, b *Backend, a *driver.Acquisition) driver.Subscription {
	t.Helper()
	mustHeld(t, b, a)
	s, err := b.Subscribe(t.Context(), a)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	mustHeld(t, b, a)
	require.True(t, a.MayBeGranted)
	return s
}

// give releases l, after it has looked at its queue.
func give(t *testing.T, l driver.Lease) {
	t.Helper()
	l.(*lease).backend.lookAt(t.Context(), []*lease{l.(*lease)})
	release(t, l)
}

func sight(t *testing.T, b *Backend, key string) *seen {
	t.Helper()
	v, err := b.look(t.Context(), key)
	require.NoError(t, err)
	return v
}

// A release gives the lock to the next in line, who begins without a request.
func TestReleaseGrants(t *testing.T) {
	addr := testserver.Consul(t)
	c, config := counting()
	b, a := giver(t, addr, config), wish(newKey(t))
	b.confirms = 200 * time.Millisecond
	held := take(t, giver(t, addr), wish(a.Key))
	last, _ := held.Tokens()
	s := waits(t, b, a)
	c.take()
	give(t, held)
	v := sight(t, b, a.Key)
	require.True(t, v.heldBy(a.ID) && v.granted(), "the release left the lock")
	c.take()
	receive(t, s.C())
	l := take(t, b, a)
	counts := c.take()
	b.noLookout(l.(*lease))
	require.LessOrEqual(t, counts["GET kv"], 1, "the next blocking query")
	delete(counts, "GET kv")
	require.Empty(t, counts)
	first, _ := l.Tokens()
	require.Greater(t, first, last)
	require.Equal(t, v.pair.CreateIndex<<tokenBits, first)
	require.Less(t, l.(driver.ProvisionalLease).Term(), grantLimit)
	eventually(t, soon, "the lease is whole", func() bool {
		return l.(driver.ProvisionalLease).Term() == long && l.Deadline().Left() > long*3/4
	})
	require.Equal(t, 2, c.take()["PUT txn"], "a look, and the place is given up")
	queued(t, addr, a.Key, 0)
	release(t, l)
	require.Nil(t, pair(t, addr, a.Key))
}

// A hold that is over before it was confirmed is confirmed by its release, which
// gives the lock on; and by one that gives it to nobody.
func TestReleaseConfirms(t *testing.T) {
	addr := testserver.Consul(t)
	c, config := counting()
	one, two, a := giver(t, addr, config), giver(t, addr), wish(newKey(t))
	one.confirms, two.confirms = time.Hour, time.Hour
	behind := wish(a.Key)
	held := take(t, giver(t, addr), wish(a.Key))
	s, second := waits(t, one, a), waits(t, two, behind)
	give(t, held)
	receive(t, s.C())
	l := take(t, one, a)
	c.take()
	release(t, l)
	require.Equal(t, 2, c.take()["PUT txn"], "a look, and all at once")
	require.True(t, sight(t, two, a.Key).heldBy(behind.ID))
	queued(t, addr, a.Key, 1)
	receive(t, second.C())
	l = take(t, two, behind)
	release(t, l)
	require.Nil(t, pair(t, addr, a.Key))
	queued(t, addr, a.Key, 0)
}

// S47: one that has died, but whose session lasts, keeps the others no longer than
// grantLimit. Then its confirmation is refused.
func TestGranteeThatDied(t *testing.T) {
	t.Parallel()
	addr := testserver.Consul(t)
	b, a := giver(t, addr), wish(newKey(t))
	held := take(t, giver(t, addr), wish(a.Key))
	waits(t, b, a)
	waiting := start(newLocker(t, addr), ttl(long), a.Key)
	queued(t, addr, a.Key, 2)
	begin := time.Now()
	give(t, held)
	v := sight(t, b, a.Key)
	require.True(t, v.granted())
	o := receive(t, waiting)
	require.NoError(t, o.err)
	require.GreaterOrEqual(t, time.Since(begin), grantLimit-10*time.Millisecond)
	require.Less(t, time.Since(begin), grantLimit+time.Second)
	require.ErrorIs(t, b.confirm(t.Context(), v, nil), errMoved)
	mustRelease(t, o.held)
	queued(t, addr, a.Key, 0)
}

// S59: one that begins and then hangs is over before anyone else begins, and finds
// that out.
func TestGranteeThatHangs(t *testing.T) {
	t.Parallel()
	addr := testserver.Consul(t)
	n := backendtest.NewNetwork(t)
	b, a := giver(t, n.Addr(addr)), wish(newKey(t))
	held := take(t, giver(t, addr), wish(a.Key))
	s := waits(t, b, a)
	waiting := start(newLocker(t, addr), ttl(long), a.Key)
	queued(t, addr, a.Key, 2)
	give(t, held)
	limit := driver.Now().Add(grantLimit)
	receive(t, s.C())
	n.Silence()
	time.Sleep(50 * time.Millisecond)
	l := take(t, b, a)
	looked := make(chan struct{}, 10)
	l.(driver.LossNotifier).NotifyLoss(func() { looked <- struct{}{} })
	require.Positive(t, l.Deadline().Left())
	require.LessOrEqual(t, l.Deadline().Left(), limit.Left())
	o := receive(t, waiting)
	require.NoError(t, o.err)
	require.LessOrEqual(t, l.Deadline().Left(), time.Duration(0))
	n.Heal()
	wantIs(t, l.Renew(within(t, soon), long), lock.ErrLost)
	receive(t, looked)
	require.LessOrEqual(t, l.Deadline().Left(), time.Duration(0))
	wantIs(t, l.Release(within(t, soon), 0), lock.ErrLost)
	require.NoError(t, lock.Check(o.ctx))
	mustRelease(t, o.held)
}

// The time of a grant counts from before it, however late one hears of it: who has
// too little left confirms first.
func TestLateNotice(t *testing.T) {
	t.Parallel()
	addr := testserver.Consul(t)
	c, config := counting()
	b, a := giver(t, addr, config), wish(newKey(t))
	held := take(t, giver(t, addr), wish(a.Key))
	s := waits(t, b, a)
	give(t, held)
	receive(t, s.C())
	time.Sleep(grantLimit/2 + 10*time.Millisecond)
	c.take()
	l := take(t, b, a)
	require.Equal(t, 2, c.take()["PUT txn"])
	require.Equal(t, long, l.(driver.ProvisionalLease).Term())
	queued(t, addr, a.Key, 0)
	release(t, l)
}

// A grant that was taken away is not begun by, though one hears of it late: the
// lock was another's since.
func TestGrantOfThePast(t *testing.T) {
	addr := testserver.Consul(t)
	b, other, a := giver(t, addr), giver(t, addr), wish(newKey(t))
	held := take(t, other, wish(a.Key))
	s := waits(t, b, a)
	give(t, held)
	receive(t, s.C())
	b.mu.Lock()
	w := b.watches[a.Key]
	past := w.pair
	b.mu.Unlock()
	require.NoError(t, other.pass(t.Context(), sight(t, other, a.Key)))
	held = take(t, other, wish(a.Key))
	doing := &taking{backend: b, acquisition: a, process: process(a.ID), session: held.(*lease).session}
	_, l, err := doing.reconsider(t.Context())
	require.Error(t, err)
	require.Nil(t, l)
	queued(t, addr, a.Key, 1) // again
	b.mu.Lock()
	w.pair = past
	b.mu.Unlock()
	require.Nil(t, doing.claim())
	require.NoError(t, b.Undo(t.Context(), a))
	release(t, held)
}

// Of a confirmation and whoever takes the lock away one alone succeeds.
func TestConfirmedOrTakenAway(t *testing.T) {
	addr := testserver.Consul(t)
	for _, first := range []string{"confirmed", "taken away"} {
		b, other, a := giver(t, addr), giver(t, addr), wish(newKey(t))
		held := take(t, other, wish(a.Key))
		waits(t, b, a)
		give(t, held)
		v, w := sight(t, other, a.Key), sight(t, b, a.Key)
		if first == "confirmed" {
			require.NoError(t, b.confirm(t.Context(), w, nil))
			require.ErrorIs(t, other.pass(t.Context(), v), errMoved)
			require.True(t, sight(t, b, a.Key).heldBy(a.ID))
		} else {
			require.NoError(t, other.pass(t.Context(), v))
			require.ErrorIs(t, b.confirm(t.Context(), w, nil), errMoved)
			require.Nil(t, pair(t, addr, a.Key))
		}
		require.NoError(t, b.Undo(t.Context(), a))
		require.Nil(t, pair(t, addr, a.Key))
	}
}

// intruder lets others in before the last of n requests.
type intruder struct {
	http.RoundTripper
	n  atomic.Int64
	do func()
}

func (i *intruder) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.URL.Path, "/txn") && i.n.Add(-1) == 0 {
		i.do()
	}
	return i.RoundTripper.RoundTrip(r)
}

// A confirmation that others overtake by enlisting is made all the same.
func TestConfirmedWhileOthersEnlist(t *testing.T) {
	addr := testserver.Consul(t)
	a, other := wish(newKey(t)), giver(t, addr)
	between := &intruder{do: func() { mustHeld(t, other, wish(a.Key)) }}
	b := giver(t, addr, func(c *api.Config) {
		between.RoundTripper = c.Transport
		c.HttpClient = &http.Client{Transport: between}
	})
	b.confirms = time.Hour
	held := take(t, giver(t, addr), wish(a.Key))
	s := waits(t, b, a)
	give(t, held)
	receive(t, s.C())
	l := take(t, b, a)
	b.noLookout(l.(*lease))
	between.n.Store(2) // it looks, and writes
	require.NoError(t, l.Renew(t.Context(), long))
	v := sight(t, other, a.Key)
	require.True(t, v.heldBy(a.ID))
	require.Len(t, v.queue.lines, 1)
	require.Equal(t, -1, v.queue.place(process(a.ID)))
	release(t, l)
}

// G3, S65: processes that give the lock to each other exclude each other, and a
// client of api.Lock beside them, who stands in no queue, has its chance.
func TestProcessesAlternate(t *testing.T) {
	t.Parallel()
	addr := testserver.Consul(t)
	key := newKey(t)
	theirs, err := newClient(t, addr).LockKey(key)
	require.NoError(t, err)
	var inside sync.Mutex
	var highest uint64
	enter := func(token uint64) {
		if !inside.TryLock() {
			t.Error("two are inside")
			return
		}
		defer inside.Unlock()
		if token <= highest {
			t.Errorf("token %d after %d", token, highest)
		}
		highest = max(highest, token)
		time.Sleep(time.Duration(token%3) * 7 * time.Millisecond)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var working sync.WaitGroup
	for range 3 {
		l := newLocker(t, addr)
		working.Go(func() {
			for ctx.Err() == nil {
				err := l.Do(ctx, ttl(short), key, func(ctx context.Context) error {
					token, _ := lock.Token(ctx)
					enter(token)
					return nil
				})
				if err != nil && ctx.Err() == nil {
					t.Error(err)
				}
			}
		})
	}
	time.Sleep(2 * time.Second)
	begin := time.Now()
	_, err = theirs.Lock(nil)
	t.Logf("api.Lock had its turn after %v", time.Since(begin))
	require.NoError(t, err)
	enter(pair(t, addr, key).ModifyIndex << tokenBits)
	require.NoError(t, theirs.Unlock())
	cancel()
	working.Wait()
	eventually(t, soon, "all is left", func() bool { return theirs.Destroy() == nil })
	queued(t, addr, key, 0)
}

// One release in some leaves the lock free, with its queue.
func TestPlainRelease(t *testing.T) {
	addr := testserver.Consul(t)
	b, holder, a := giver(t, addr), newBackend(t, addr), wish(newKey(t))
	plain := 0
	for range 1000 {
		if holder.plainly() {
			plain++
		}
	}
	require.InDelta(t, 1000/plainReleases, plain, 60)
	holder.plainly = func() bool { return true }
	held := take(t, holder, wish(a.Key))
	waits(t, b, a)
	give(t, held)
	require.Nil(t, pair(t, addr, a.Key))
	queued(t, addr, a.Key, 1)
	release(t, take(t, b, a))
}

// Nobody is given a lock whose key was there before, nor by whom has found
// something written to it; nor one whose session has ended.
func TestNotGranted(t *testing.T) {
	addr := testserver.Consul(t)
	kv := newClient(t, addr).KV()
	t.Run("not ours", func(t *testing.T) {
		a := wish(newKey(t))
		_, err := kv.Put(&api.KVPair{Key: a.Key, Flags: lockFlag}, nil)
		require.NoError(t, err)
		held, b := take(t, giver(t, addr), wish(a.Key)), giver(t, addr)
		waits(t, b, a)
		give(t, held)
		require.Empty(t, pair(t, addr, a.Key).Session)
		release(t, take(t, b, a))
		_, err = kv.Delete(a.Key, nil)
		require.NoError(t, err)
	})
	t.Run("session has ended", func(t *testing.T) {
		a := wish(newKey(t))
		held, b := take(t, giver(t, addr), wish(a.Key)), giver(t, addr)
		front := wish(a.Key) // the queue is not the dead one's
		first := giver(t, addr)
		waits(t, first, front)
		waits(t, b, a)
		require.NoError(t, first.Undo(t.Context(), front))
		queued(t, addr, a.Key, 1)
		endSession(t, addr, sight(t, b, a.Key).queue.head().session)
		give(t, held)
		require.Nil(t, pair(t, addr, a.Key))
		release(t, take(t, b, a))
	})
}
