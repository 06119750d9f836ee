package etcdlock

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	lock "github.com/lockgen/lockgen/runtime"
)

// faulty returns a Backend, the faults of its connection, and a key.
func faulty(t testing.TB) (*Backend, *faults, string) {
	f := &faults{}
	return newBackend(t, shared(t), withFaults(f)), f, newKey(t)
}

// S12, S13: replies to an acquire are lost. There is still only one queue entry and one lease.
func TestLostRepliesOfAnAcquire(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 6; n++ {
		b, f, key := faulty(t)
		f.lose(n, writes(key))
		a := attempt(key, "A:1")
		lease := taken(t, b, a)
		require.True(t, a.MayHaveRun)
		_, values := below(t, b.client, key+"/")
		require.Equal(t, []string{"A:1"}, values)
		requireHeld(t, b, attempt(key, "B:1"))
		released(t, lease)
		released(t, taken(t, b, attempt(key, "B:1")))
		nothingLeft(t, b.client, key)
	}
}

// S14: all replies are lost. The outcome is unknown, and the acquire is undone.
func TestNoReplyToAnAcquire(t *testing.T) {
	t.Parallel()
	for _, queue := range []bool{true, false} {
		b, f, key := faulty(t)
		a := attempt(key, "A:1")
		a.Queue = queue
		_, err := b.Acquire(until(t, f.lose(100, writes(key))), a)
		require.ErrorIs(t, err, lock.ErrIndeterminate)
		require.True(t, a.MayHaveRun)
		_, values := below(t, b.client, key+"/")
		require.Equal(t, []string{"A:1"}, values, "the acquire must have taken the key")
		require.NoError(t, b.Undo(t.Context(), a))
		nothingLeft(t, b.client, key)
		f.heal()
		_, err = b.Acquire(t.Context(), a)
		require.ErrorIs(t, err, errUndone)
		released(t, taken(t, b, asTry(attempt(key, "A:2"))))
	}
}

// S14, with a Locker: the next acquire need not wait for the ttl.
func TestNoReplyUnderALocker(t *testing.T) {
	t.Parallel()
	f, key := &faults{}, newKey(t)
	l := lockerOn(t, New(newClient(t, []string{shared(t)}, withFaults(f))))
	_, _, err := l.Acquire(until(t, f.lose(100, writes(key))), nil, key)
	require.ErrorIs(t, err, lock.ErrIndeterminate)
	require.ErrorIs(t, err, context.Canceled)
	nothingLeft(t, admin(t, shared(t)), key)
	_, held := acquire(t, newLocker(t, shared(t)), nil, key)
	require.NoError(t, finish(held))
}

// S15: the undo overtakes the acquire, which finds that it was undone.
func TestUndoOvertakesTheAcquire(t *testing.T) {
	t.Parallel()
	for _, queue := range []bool{true, false} {
		b, f, key := faulty(t)
		released(t, taken(t, b, attempt(newKey(t), "A:0"))) // creates a session
		a := attempt(key, "A:1")
		a.Queue = queue
		late := lateAcquire(t, b, f, a)
		require.NoError(t, b.Undo(t.Context(), a))
		require.NoError(t, late.arrives(t))
		nothingLeft(t, b.client, key)

		// The same if the acquire takes over the entry of another acquisition.
		lease := taken(t, b, attempt(key, "B:1"))
		requireHeld(t, b, attempt(key, "A:2"))
		a = attempt(key, "A:3")
		late = lateAcquire(t, b, f, a)
		require.NoError(t, b.Undo(t.Context(), a))
		require.NoError(t, late.arrives(t))
		require.NoError(t, b.Undo(t.Context(), a))
		released(t, lease)
		lease = taken(t, b, attempt(key, "C:1"))
		released(t, lease)
	}
}

// The key was written, but the request that asks whether it is the first gets no answer. So the acquire
// is undone. That is a second request, because there are many locks below the key.
func TestNoReplyToTheLook(t *testing.T) {
	t.Parallel()
	f, key, c := &faults{}, newKey(t), admin(t, shared(t))
	b := New(newClient(t, []string{shared(t)}, withFaults(f)))
	l, other := lockerOn(t, b), newBackend(t, shared(t))
	for i := range 2 * readLimit {
		taken(t, other, attempt(key+"/"+strconv.Itoa(i), "A:1"))
	}
	for _, p := range []*lock.Policy{nil, try()} {
		late := f.late(func(req any) bool {
			r, ok := req.(*pb.TxnRequest)
			return ok && len(r.Success) == 1 && string(r.Success[0].GetRequestRange().GetKey()) == key+"/"
		})
		_, _, err := l.Acquire(until(t, late.arrived), p, key)
		require.Error(t, err)
		queued(t, c, key, 2*readLimit)
		require.NoError(t, late.arrives(t))
	}
}

// S16: an attempt was sent again, and its first copy arrives after the release.
func TestLateCopyOfAnAcquire(t *testing.T) {
	t.Parallel()
	b, f, key := faulty(t)
	late := f.lateCopy(writes(key))
	lease := taken(t, b, attempt(key, "A:1"))
	released(t, lease)
	require.NoError(t, late.arrives(t))
	nothingLeft(t, b.client, key)
	released(t, taken(t, b, asTry(attempt(key, "B:1"))))
}

// The same without a release, because somebody has deleted the key (S31).
func TestLateCopyOfALostAcquire(t *testing.T) {
	t.Parallel()
	b, f, key := faulty(t)
	late := f.lateCopy(writes(key))
	lease := taken(t, b, attempt(key, "A:1"))
	_, err := b.client.Delete(t.Context(), key+"/", clientv3.WithPrefix())
	require.NoError(t, err)
	require.ErrorIs(t, lease.Renew(t.Context(), time.Second), lock.ErrLost)
	nothingPending(t, b, "A")
	require.NoError(t, late.arrives(t))
	keys, _ := below(t, b.client, key+"/")
	require.Empty(t, keys)
	released(t, taken(t, b, asTry(attempt(key, "B:1"))))
}

// S17: a release whose reply is lost was done, and succeeds. S18: a late copy of it
// does not free the next holder's lock.
func TestLostRepliesOfARelease(t *testing.T) {
	t.Parallel()
	b, f, key := faulty(t)
	lease := taken(t, b, attempt(key, "A:1"))
	f.lose(2, deletes(key))
	released(t, lease)
	require.ErrorIs(t, lease.Release(t.Context(), 0), lock.ErrLost)

	lease = taken(t, b, attempt(key, "A:2"))
	require.Error(t, lease.Release(until(t, f.lose(100, deletes(key))), 0))
	f.heal()
	next := taken(t, b, attempt(key, "A:3")) // the next acquisition of the same Locker
	released(t, lease)
	requireHeld(t, b, attempt(key, "B:1"))
	released(t, next)
}

// A late copy of a release does not free the next lock, even if that belongs to the same Locker.
func TestLateRelease(t *testing.T) {
	t.Parallel()
	b, f, key := faulty(t)
	lease := taken(t, b, attempt(key, "A:1"))
	late := f.lateCopy(deletes(key))
	released(t, lease)
	next := taken(t, b, attempt(key, "A:2"))
	require.NoError(t, late.arrives(t))
	requireHeld(t, b, asTry(attempt(key, "B:1")))
	released(t, next)
}

// A queue entry is given up, but the request has no answer and may delete the entry late. An acquisition
// that continues with the entry first writes it again, so that the late request deletes nothing.
func TestLateGivingUpOfAnEntry(t *testing.T) {
	t.Parallel()
	b, f, key := faulty(t)
	lease := taken(t, b, attempt(key, "B:1"))
	requireHeld(t, b, attempt(key, "A:1"))
	late, repeated := f.late(deletes(key)), f.late(deletes(key)) // the request of the undo, and of the session that repeats it
	leaving := attempt(key, "A:9")                               // its Locker has a next waiter meanwhile
	require.Error(t, b.Undo(until(t, late.arrived), leaving))
	receive(t, "the repeated undo", repeated.arrived)
	released(t, lease)
	lease = taken(t, b, attempt(key, "A:1"))
	require.NoError(t, late.arrives(t))
	require.NoError(t, repeated.arrives(t))
	requireHeld(t, b, asTry(attempt(key, "B:2")))
	released(t, lease)
}

// G10: a queue entry serves the next acquisition of its Locker. If the ttl needs another session, a new
// entry replaces it.
func TestAnEntryServesTheNext(t *testing.T) {
	t.Parallel()
	b, key, c := newBackend(t, shared(t)), newKey(t), admin(t, shared(t))
	lease := taken(t, b, attempt(key, "A:1"))
	requireHeld(t, b, attempt(key, "B:1"))
	requireHeld(t, b, attempt(key, "C:1"))
	requireHeld(t, b, attempt(key, "B:2"))
	_, values := below(t, c, key+"/")
	require.Equal(t, []string{"A:1", "B:2", "C:1"}, values)
	released(t, lease)
	requireHeld(t, b, attempt(key, "C:1"))
	lease = taken(t, b, attempt(key, "B:3"))

	requireHeld(t, b, attempt(key, "D:1"))
	other := attempt(key, "C:2")
	other.TTL = time.Hour // another session: a new entry, and not two
	requireHeld(t, b, other)
	_, values = below(t, c, key+"/")
	require.Equal(t, []string{"B:3", "D:1", "C:2"}, values)

	// The entries are given up. C:3 and B:4 are acquisitions that made no attempt.
	require.NoError(t, b.Undo(t.Context(), attempt(key, "C:3")))
	require.NoError(t, b.Undo(t.Context(), attempt(key, "D:1")))
	require.NoError(t, b.Undo(t.Context(), attempt(key, "B:4")))
	_, values = below(t, c, key+"/")
	require.Equal(t, []string{"B:3"}, values)
	require.NoError(t, b.Undo(t.Context(), attempt(key, "B:3")), "an undo also frees the lock")
	require.ErrorIs(t, lease.Renew(t.Context(), time.Second), lock.ErrLost)
	nothingLeft(t, c, key)
}
