package etcdlock

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// Data of others below a key does not affect its lock, however large the data is.
func TestMuchBelowTheKey(t *testing.T) {
	t.Parallel()
	b, key, c := newBackend(t, shared(t)), newKey(t), admin(t, shared(t))
	for i := range 2 * readLimit {
		_, err := c.Put(t.Context(), fmt.Sprintf("%s/data/%d", key, i), strings.Repeat("x", 1_000_000))
		require.NoError(t, err)
	}
	lease := taken(t, b, attempt(key, "A:1"))
	requireHeld(t, b, attempt(key, "B:1"))
	info, err := b.Lock(t.Context(), key)
	require.NoError(t, err)
	require.Equal(t, 1, info.Waiters)
	released(t, lease)
	require.NoError(t, b.Undo(t.Context(), attempt(key, "B:1")))
	_, err = c.Delete(t.Context(), key+"/", clientv3.WithPrefix())
	require.NoError(t, err)
}

// A lease that is created after its session has ended is over, and its release closes it.
func TestLeaseInASessionThatHasEnded(t *testing.T) {
	t.Parallel()
	b, key := newBackend(t, shared(t)), newKey(t)
	taken(t, b, attempt(key, "A:1"))
	s := b.sessionsOf("A")[0]
	s.End(driver.ErrLost)
	eventually(t, "the session is gone", func() bool { return len(b.sessions.All()) == 0 && b.remembered() == 0 })
	a := attempt(key, "A:2")
	l := newLease(&entry{backend: b, place: engine.PlaceOf(a), created: 1}, s, a, driver.Now())
	require.LessOrEqual(t, l.Deadline().Left(), time.Duration(0))
	require.ErrorIs(t, l.Release(t.Context(), 0), driver.ErrLost)
	require.Zero(t, b.remembered())
}

// The layout is that of concurrency.Mutex, but the value is ours.
func TestLayout(t *testing.T) {
	t.Parallel()
	b, c, key := newBackend(t, shared(t)), admin(t, shared(t)), newKey(t)
	lease := taken(t, b, attempt(key, "A:1"))
	resp, err := c.Get(t.Context(), key+"/", clientv3.WithPrefix())
	require.NoError(t, err)
	require.Len(t, resp.Kvs, 1)
	kv := resp.Kvs[0]
	require.Equal(t, key+"/"+strconv.FormatInt(kv.Lease, 16), string(kv.Key))
	require.Equal(t, "A:1", string(kv.Value))
	left, err := c.TimeToLive(t.Context(), clientv3.LeaseID(kv.Lease))
	require.NoError(t, err)
	require.EqualValues(t, 61, left.GrantedTTL, "the next second above a minute")

	token, n := lease.Tokens()
	require.Equal(t, uint64(kv.CreateRevision)<<16, token)
	require.EqualValues(t, 1, n)
	released(t, lease)
	nothingLeft(t, c, key)
}

// G3: a block of up to 65,536 tokens, all below those of the next lease.
func TestTokens(t *testing.T) {
	t.Parallel()
	b, key := newBackend(t, shared(t)), newKey(t)
	last := uint64(0)
	for _, ask := range []uint64{1, 1000, 1 << 16, 1 << 20} {
		a := attempt(key, newID("A"))
		a.Tokens = ask
		lease := taken(t, b, a)
		token, n := lease.Tokens()
		require.Equal(t, min(ask, 1<<16), n)
		require.Greater(t, token, last)
		last = token + n - 1
		released(t, lease)
	}
}

// A key has one holder at a time, in the order of arrival, no matter which Locker, Backend or process
// the acquisitions belong to.
func TestExclusion(t *testing.T) {
	t.Parallel()
	b, other, key := newBackend(t, shared(t)), newBackend(t, shared(t)), newKey(t)
	lease := taken(t, b, attempt(key, "A:1"))
	requireHeld(t, b, attempt(key, "A:2"))        // the same Locker
	requireHeld(t, b, attempt(key, "B:1"))        // another on the same backend
	requireHeld(t, other, attempt(key, "C:1"))    // another process
	requireHeld(t, b, asTry(attempt(key, "D:1"))) // a try
	taken(t, b, attempt(key+"2", "B:2"))          // another key
	require.NotZero(t, first(lease))
	released(t, lease)
	requireHeld(t, other, attempt(key, "C:1"))
	lease = taken(t, b, attempt(key, "B:1"))
	released(t, lease)
	requireHeld(t, b, attempt(key, "B:3"))
	lease = taken(t, other, attempt(key, "C:1"))
	released(t, lease)
	released(t, taken(t, b, attempt(key, "B:3")))
	nothingLeft(t, admin(t, shared(t)), key)
}

// An acquisition that is repeated gets the same lease.
func TestAcquireIsIdempotent(t *testing.T) {
	t.Parallel()
	b, key := newBackend(t, shared(t)), newKey(t)
	one, two := taken(t, b, attempt(key, "A:1")), taken(t, b, attempt(key, "A:1"))
	require.Equal(t, first(one), first(two))
	released(t, two)
	released(t, taken(t, b, attempt(key, "B:1")))
}

// Many goroutines, in one process and in several, use one key at once.
func TestManyLockers(t *testing.T) {
	t.Parallel()
	key, b := newKey(t), New(newClient(t, []string{shared(t)}))
	var inside, total int // guarded by the lock under test; the race detector checks this too
	var last uint64
	var all sync.WaitGroup
	for _, l := range []*lock.Locker{lockerOn(t, b), lockerOn(t, b), newLocker(t, shared(t)), newLocker(t, shared(t))} {
		for range 4 {
			all.Go(func() {
				for range 25 {
					err := l.Do(context.Background(), nil, key, func(ctx context.Context) error {
						inside++
						now, _ := lock.Token(ctx)
						if inside != 1 || now <= last {
							t.Errorf("%d are inside; token %d after token %d", inside, now, last)
						}
						last = now
						total++
						inside--
						return nil
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	all.Wait()
	require.Equal(t, 4*4*25, total)
	nothingLeft(t, admin(t, shared(t)), key)
}

// concurrency.Mutex and our lock exclude and wake each other.
func TestInterop(t *testing.T) {
	t.Parallel()
	key, b := newKey(t), newBackend(t, shared(t))
	c := admin(t, shared(t))
	mutex := concurrency.NewMutex(otherSession(t, shared(t)), key)

	require.NoError(t, mutex.Lock(t.Context()))
	requireHeld(t, b, asTry(attempt(key, "A:1")))
	waiting := attempt(key, "A:2")
	requireHeld(t, b, waiting)
	sub, err := b.Subscribe(t.Context(), waiting)
	require.NoError(t, err)
	defer sub.Close()
	require.Empty(t, sub.C())
	require.NoError(t, mutex.Unlock(t.Context()))
	receive(t, "a notice", sub.C())
	ours := taken(t, b, waiting)

	require.ErrorIs(t, mutex.TryLock(t.Context()), concurrency.ErrLocked)
	theirs := make(chan error, 1)
	go func() { theirs <- mutex.Lock(context.Background()) }()
	queued(t, c, key, 2)
	released(t, ours)
	require.NoError(t, receive(t, "their lock", theirs))
	require.NoError(t, mutex.Unlock(t.Context()))
}

// The other client and ours take turns, and count without an atomic command.
func TestInteropCounts(t *testing.T) {
	t.Parallel()
	key, l := newKey(t), newLocker(t, shared(t))
	mutex := concurrency.NewMutex(otherSession(t, shared(t)), key)
	const each = 50
	var n int
	var both sync.WaitGroup
	both.Go(func() {
		for range each {
			if err := mutex.Lock(context.Background()); err != nil {
				t.Error(err)
				return
			}
			n++
			if err := mutex.Unlock(context.Background()); err != nil {
				t.Error(err)
			}
		}
	})
	for range each {
		err := l.Do(t.Context(), nil, key, func(context.Context) error { n++; return nil })
		require.NoError(t, err)
	}
	both.Wait()
	require.Equal(t, 2*each, n)
}

// The keys a and a/b are independent of each other, whichever is locked first and however
// many keys below a are locked.
func TestNestedKeys(t *testing.T) {
	t.Parallel()
	b, key := newBackend(t, shared(t)), newKey(t)
	inner := taken(t, b, attempt(key+"/b", "A:1"))
	var more []driver.Lease
	for i := range 6 {
		more = append(more, taken(t, b, attempt(key+"/"+strconv.Itoa(i), "A:2")))
	}
	for _, id := range []string{"A:3", "B:1"} {
		released(t, taken(t, b, asTry(attempt(key, id))))
		outer := taken(t, b, attempt(key, id))
		requireHeld(t, b, asTry(attempt(key, "C:1")))
		requireHeld(t, b, attempt(key, "C:2"))
		for i := range 6 {
			released(t, more[i])
			more[i] = taken(t, b, attempt(key+"/"+strconv.Itoa(i), newID("A")))
		}
		requireHeld(t, b, attempt(key, "C:2"))
		released(t, outer)
		released(t, taken(t, b, attempt(key, "C:2")))
	}
	requireHeld(t, b, attempt(key+"/b", "B:2"))
	released(t, inner)
	released(t, taken(t, b, attempt(key+"/b", "B:2")))
}

// A key without a lease is not a lock of anyone, and would never be deleted.
func TestForeignKey(t *testing.T) {
	t.Parallel()
	key, l, c := newKey(t), newLocker(t, shared(t)), admin(t, shared(t))
	_, err := c.Put(t.Context(), key, "of no concern")
	require.NoError(t, err)
	_, held := acquire(t, l, nil, key)
	require.NoError(t, finish(held))

	_, err = c.Put(t.Context(), key+"/x", "foreign")
	require.NoError(t, err)
	for _, p := range []*lock.Policy{nil, try()} {
		err = rejected(t, l, p, key)
		require.ErrorIs(t, err, lock.ErrConflict)
		require.NotErrorIs(t, err, lock.ErrIndeterminate)
		require.ErrorContains(t, err, key+"/x")
	}
	for _, p := range []lock.Policy{{Read: true}, {Write: true}, {Fair: true}, {Permits: 2}} {
		err = rejected(t, l, &p, key)
		require.ErrorIs(t, err, lock.ErrConflict)
		require.ErrorContains(t, err, key+"/x")
	}
	keys, _ := below(t, c, key+"/")
	require.Equal(t, []string{"x"}, keys)
	// A value that is not a record is a conflict too, at the key of a record.
	other := newKey(t)
	_, err = c.Put(t.Context(), recordOf(other), "foreign")
	require.NoError(t, err)
	for _, p := range []lock.Policy{{}, {Read: true}, {Write: true}, {Fair: true}, {Permits: 2}} {
		err = rejected(t, l, &p, other)
		require.ErrorIs(t, err, lock.ErrConflict)
		require.ErrorContains(t, err, "no lock of ")
	}

	// A key that has a lease is a contender, whoever wrote it.
	granted, err := c.Grant(t.Context(), 10)
	require.NoError(t, err)
	_, err = c.Put(t.Context(), key+"/x", "foreign", clientv3.WithLease(granted.ID))
	require.NoError(t, err)
	require.ErrorIs(t, rejected(t, l, try(), key), lock.ErrNotAcquired)
	waiting := start(t.Context(), l, nil, key)
	queued(t, c, key, 2)
	_, err = c.Revoke(t.Context(), granted.ID)
	require.NoError(t, err)
	got := receive(t, "the lock", waiting)
	require.NoError(t, got.err)
	require.NoError(t, finish(got.held))
}

func TestBadKeysAndTTLs(t *testing.T) {
	t.Parallel()
	b := newBackend(t, shared(t))
	for _, a := range []*driver.Acquisition{
		attempt("", "A:1"),
		attempt(string(make([]byte, 1025)), "A:1"),
		{Key: "k", ID: "A:1", TTL: 0, Tokens: 1},
		{Key: "k", ID: "A:1", TTL: -time.Second, Tokens: 1},
		{Key: "k", ID: "A:1", TTL: 9_000_000_000 * time.Second, Tokens: 1},
	} {
		_, err := b.Acquire(t.Context(), a)
		require.ErrorIs(t, err, lock.ErrInvalid)
		require.NoError(t, b.Undo(t.Context(), a))
	}
	_, err := b.Acquire(t.Context(), &driver.Acquisition{Key: "k", ID: "A:1", TTL: 9_000_000_000 * time.Second, Tokens: 1})
	require.ErrorContains(t, err, "8999999999 s")
	long := attempt(newKey(t), "A:1")
	long.TTL = maxTTL
	released(t, taken(t, b, long))
	for _, key := range []string{"\x00", "\xff\xff", "a\n b", "/", "a/", "//", "é", string(make([]byte, 1024))} {
		released(t, taken(t, b, attempt(key, newID("A"))))
	}
}
