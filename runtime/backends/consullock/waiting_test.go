package consullock

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/internal/testserver"
	"github.com/lockgen/lockgen/runtime/driver"
)

// Waiting processes get the lock in the order of their arrival. The last one
// deletes the queue.
func TestTurns(t *testing.T) {
	addr := testserver.Consul(t)
	key := newKey(t)
	first := take(t, newBackend(t, addr), attempt(key))
	order := make(chan int, 3)
	for i := range 3 {
		l := newLocker(t, addr)
		go func() {
			_ = l.Do(context.Background(), ttl(long), key, func(context.Context) error {
				order <- i
				return nil
			})
		}()
		queued(t, addr, key, i+1)
	}
	release(t, first)
	for i := range 3 {
		require.Equal(t, i, receive(t, order))
	}
	queued(t, addr, key, 0)
	eventually(t, soon, "the last has released it", func() bool { return pair(t, addr, key) == nil })
}

// Nobody overtakes the waiting processes. A process that does not take its turn
// delays the others by half a second.
func TestTurnThatIsNotTaken(t *testing.T) {
	addr := testserver.Consul(t)
	b, key := newBackend(t, addr), newKey(t)
	first := take(t, newBackend(t, addr), attempt(key))
	dead := attempt(key)
	dead.Queue = true
	mustHeld(t, b, dead)
	queued(t, addr, key, 1)
	begin := time.Now()
	release(t, first)
	mustHeld(t, b, attempt(key)) // it is the turn of dead
	_, held := acquire(t, newLocker(t, addr), ttl(long), key)
	require.GreaterOrEqual(t, time.Since(begin), turnLimit-50*time.Millisecond)
	mustRelease(t, held)
	queued(t, addr, key, 0)
}

// A place in the queue is deleted with its session.
func TestPlaceGoesWithItsSession(t *testing.T) {
	addr := testserver.Consul(t)
	key := newKey(t)
	first := take(t, newBackend(t, addr), attempt(key))
	waiting := New(newClient(t, addr), noDelay())
	a := attempt(key)
	a.Queue = true
	mustHeld(t, waiting, a)
	queued(t, addr, key, 1)
	require.NoError(t, waiting.Close())
	queued(t, addr, key, 0)
	release(t, first)
}

// A call continues to wait without a session while the server creates none.
func TestWaiterWithoutASession(t *testing.T) {
	t.Parallel()
	addr := testserver.Consul(t)
	sessions := refusingAt("/session/create")
	b := newBackend(t, addr, func(c *api.Config) {
		sessions.RoundTripper = c.Transport
		c.HttpClient = &http.Client{Transport: sessions}
	})
	a := queuing(newKey(t))
	held := take(t, newBackend(t, addr), queuing(a.Key))
	mustHeld(t, b, a)
	sessions.on.Store(true)
	endSession(t, addr, b.sessions.All()[0].id)
	queued(t, addr, a.Key, 0)
	mustHeld(t, b, a)
	sessions.on.Store(false)
	release(t, held)
	release(t, take(t, b, a))
}

// A waiter that begins to watch another key keeps its watch slot, and needs no second one.
func TestWatchKeepsItsRoom(t *testing.T) {
	t.Parallel()
	addr := testserver.Consul(t)
	b, a := newBackend(t, addr), queuing(newKey(t))
	for range maxWatches - 1 {
		b.watchSlots <- struct{}{} // only one slot is left
	}
	held := take(t, newBackend(t, addr), queuing(a.Key))
	mustHeld(t, newBackend(t, addr), queuing(a.Key)) // the predecessor in the queue
	s := waits(t, b, a)                              // watches the predecessor
	theirs, err := newClient(t, addr).LockKey(a.Key)
	require.NoError(t, err)
	release(t, held)
	_, err = theirs.Lock(nil)
	require.NoError(t, err)
	_, err = b.Acquire(t.Context(), a) // now a watches the lock
	var others *driver.HeldError
	require.ErrorAs(t, err, &others)
	require.True(t, others.Notified)
	select {
	case <-s.C():
	default:
	}
	require.NoError(t, theirs.Unlock())
	receive(t, s.C())
	require.NoError(t, b.Undo(t.Context(), a))
	require.Len(t, b.watchSlots, maxWatches-1)
}

// /v1/kv refuses a key that begins with %20. A query that covers it would cover the whole store, so the
// lock is not watched. A predecessor in the queue can be watched.
func TestNoWatchOfTheWholeStore(t *testing.T) {
	t.Parallel()
	addr := testserver.Consul(t)
	b, a := newBackend(t, addr), queuing("%20"+newKey(t))
	held := take(t, newBackend(t, addr), queuing(a.Key))
	before, first := newBackend(t, addr), queuing(a.Key)
	mustHeld(t, before, first)
	require.True(t, isNotified(t, b, a))
	require.NoError(t, before.Undo(t.Context(), first))
	require.False(t, isNotified(t, b, a))
	release(t, held)
	release(t, take(t, b, a))
}

// A place lasts as long as its process makes attempts, even if nothing else uses its session.
func TestPlaceLasts(t *testing.T) {
	t.Parallel()
	addr := testserver.Consul(t)
	b, a := newBackend(t, addr), queuing(newKey(t))
	a.TTL = short
	held := take(t, newBackend(t, addr), queuing(a.Key))
	mustHeld(t, b, a)
	place := viewOf(t, b, a.Key).queue[0].CreateIndex
	length := classOf(a.TTL).sessionTTL()
	a = next(a) // it continues with the place, which belongs to a session of another class
	a.TTL = 2 * short
	for begin := time.Now(); time.Since(begin) < length*10/3; time.Sleep(length / 4) { // an unused session ends after three of its lengths
		mustHeld(t, b, a)
	}
	v := viewOf(t, b, a.Key)
	require.Len(t, v.queue, 1)
	require.Equal(t, place, v.queue[0].CreateIndex)
	release(t, held)
	release(t, take(t, b, a))
}

// A process whose session has ended queues again with its next session, whatever
// the lock-delay is.
func TestPlaceUnderLockDelay(t *testing.T) {
	addr := testserver.Consul(t)
	holder, key := newBackend(t, addr), newKey(t)
	first := take(t, holder, attempt(key))
	b := New(newClient(t, addr), Options{LockDelay: time.Hour}) // Consul reduces it to a minute
	defer b.Close()
	a := queuing(key)
	mustHeld(t, b, a)
	queued(t, addr, key, 1)
	endSession(t, addr, b.sessions.All()[0].id)
	queued(t, addr, key, 0)
	eventually(t, soon, "the process has another place", func() bool {
		mustHeld(t, b, a)
		return len(viewOf(t, b, key).queue) == 1
	})
	release(t, first)
	mustHeld(t, holder, attempt(key)) // it is the turn of a
	release(t, take(t, b, a))
	queued(t, addr, key, 0)
}

// /v1/kv refuses keys that contain an encoded space or two encoded dots. Calls that wait for such keys
// are still notified of a release.
func TestWakeUpOfKeysThatAreRefused(t *testing.T) {
	addr := testserver.Consul(t)
	for _, name := range []string{":user%20name:x", ":a%2E%2E", ":a%2E%2E/b%20c", "/b%20/c"} {
		key := newKey(t) + name
		b := newBackend(t, addr)
		lease := take(t, b, attempt(key))
		waiting := newBackend(t, addr)
		a := queuing(key)
		s := waits(t, waiting, a)
		require.Empty(t, s.C())
		release(t, lease)
		receive(t, s.C())
		s.Close()
		release(t, take(t, waiting, a))
	}
	for key, want := range map[string]string{"a/b": "a/b", "a%2Fb": "a%2Fb", "ab%20c%20d": "ab", "%20": "", "a/%20": "a/",
		"a/.": "a/", "a//": "a/", "a/../b": "a/", "a/%20/.": "a/", ".": "", "..": "", "a%20/%41.": "a"} {
		got, prefix := watchedPath(key)
		require.Equal(t, want, got)
		require.Equal(t, want != key, prefix)
	}
}

// Queries that are answered at once, or fail, do not follow each other at full speed.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for least, err := range map[time.Duration]error{queryInterval: nil, queryRetry: errNoAnswer} {
			begin, n := time.Now(), 0
			queryUntilDone(t.Context(), 0, func(*api.QueryOptions) (*api.QueryMeta, bool, error) {
				n++
				return &api.QueryMeta{LastIndex: uint64(n)}, time.Since(begin) > 10*time.Second, err
			})
			require.LessOrEqual(t, n, int(13*time.Second/least))
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		queryUntilDone(ctx, 0, func(*api.QueryOptions) (*api.QueryMeta, bool, error) {
			t.Error("a query is sent although the context has ended")
			return nil, true, nil
		})
	})
}

// Each query waits for the index that the query before it returned. If that index is lower than
// before, the next query begins again at 0. If it is 0, the next query waits for 1.
func TestFollowedIndex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		returned, asked := []uint64{10, 10, 9, 0, 7}, []uint64(nil)
		queryUntilDone(t.Context(), 5, func(o *api.QueryOptions) (*api.QueryMeta, bool, error) {
			asked = append(asked, o.WaitIndex)
			n := len(asked)
			return &api.QueryMeta{LastIndex: returned[n-1]}, n == len(returned), nil
		})
		require.Equal(t, []uint64{5, 10, 10, 0, 1}, asked)
	})
}

// One blocking query serves all calls of a process that wait for one key. If there are too many
// keys, the last ones are polled once a second.
func TestOneQueryForAKey(t *testing.T) {
	addr := testserver.Consul(t)
	c, config := counting()
	b, a := newBackend(t, addr, config), queuing(newKey(t))
	lease := take(t, newBackend(t, addr), attempt(a.Key))
	mustHeld(t, b, a)
	var subscriptions []driver.Subscription
	for range 10 {
		s, err := b.Subscribe(t.Context(), a)
		require.NoError(t, err)
		subscriptions = append(subscriptions, s)
	}
	asked := 0
	eventually(t, soon, "the key is watched", func() bool {
		asked += c.take()["GET kv"]
		return asked > 0
	})
	release(t, lease)
	for _, s := range subscriptions {
		receive(t, s.C())
	}
	asked += c.take()["GET kv"]
	require.Less(t, asked, len(subscriptions))
	release(t, take(t, b, a))
	for _, s := range subscriptions {
		s.Close()
	}
	require.Empty(t, b.waiters)
	eventually(t, soon, "no key is watched", func() bool { return len(b.watchSlots) == 0 })
	holder, many := newBackend(t, addr), []*driver.Acquisition{}
	for i := range maxWatches + 1 {
		a = queuing(newKey(t))
		defer release(t, take(t, holder, queuing(a.Key)))
		require.Equal(t, i < maxWatches, isNotified(t, b, a))
		many = append(many, a)
	}
	s, err := b.Subscribe(t.Context(), a)
	require.NoError(t, err)
	receive(t, s.C())
	require.NoError(t, b.Undo(t.Context(), many[0]))
	eventually(t, soon, "the last key is watched", func() bool { return isNotified(t, b, a) })
	s.Close()
	for _, a := range many[1:] {
		require.NoError(t, b.Undo(t.Context(), a))
	}
}

// isNotified has b queue a, whose key is held, and reports whether a will be notified.
func isNotified(t *testing.T, b *Backend, a *driver.Acquisition) bool {
	t.Helper()
	_, err := b.Acquire(t.Context(), a)
	var held *driver.HeldError
	require.ErrorAs(t, err, &held)
	return held.Notified
}

// A release wakes only the next waiter in the queue. When that waiter has taken the lock, the waiter
// behind it is woken.
func TestReleaseWakesOne(t *testing.T) {
	addr := testserver.Consul(t)
	key := newKey(t)
	held := take(t, newBackend(t, addr), queuing(key))
	one, two, three := newBackend(t, addr), newBackend(t, addr), newBackend(t, addr)
	a, b, c := queuing(key), queuing(key), queuing(key)
	first, second, third := waits(t, one, a), waits(t, two, b), waits(t, three, c)
	release(t, held)
	receive(t, first.C())
	time.Sleep(100 * time.Millisecond)
	require.Empty(t, second.C())
	held = take(t, one, a)
	receive(t, second.C())
	time.Sleep(100 * time.Millisecond)
	require.Empty(t, third.C())
	mustHeld(t, two, b)
	release(t, held)
	receive(t, second.C())
	release(t, take(t, two, b))
	receive(t, third.C())
	release(t, take(t, three, c))
	queued(t, addr, key, 0)
}

// An acquire that finds a free lock while it is another process's turn is told to try again when the
// turn is over.
func TestTurnOfAnotherIsLookedAtAgain(t *testing.T) {
	addr := testserver.Consul(t)
	b, key := newBackend(t, addr), newKey(t)
	first, next := take(t, b, attempt(key)), attempt(key)
	next.Queue = true
	mustHeld(t, b, next)
	release(t, first)
	_, err := b.Acquire(t.Context(), attempt(key))
	var h *driver.HeldError
	require.ErrorAs(t, err, &h)
	require.Positive(t, h.RetryAfter)
	require.LessOrEqual(t, h.RetryAfter, turnLimit)
	release(t, take(t, b, next))
}
