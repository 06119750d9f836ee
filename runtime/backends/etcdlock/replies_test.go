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

// torn returns a backend whose replies can be lost, what loses them, and a key.
func torn(t testing.TB) (*Backend, *faults, string) {
	f := &faults{}
	return newBackend(t, shared(t), withFaults(f)), f, newKey(t)
}

// S12, S13: replies to an acquire are lost; it is one acquisition all the same.
func TestLostRepliesOfAnAcquire(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 6; n++ {
		b, f, key := torn(t)
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

// S14: no reply at all. The outcome is unknown, and it is undone.
func TestNoReplyToAnAcquire(t *testing.T) {
	t.Parallel()
	for _, queue := range []bool{true, false} {
		b, f, key := torn(t)
		a := attempt(key, "A:1")
		a.Queue = queue
		_, err := b.Acquire(until(t, f.lose(100, writes(key))), a)
		require.ErrorIs(t, err, lock.ErrIndeterminate)
		require.True(t, a.MayHaveRun)
		_, values := below(t, b.client, key+"/")
		require.Equal(t, []string{"A:1"}, values, "it had come true")
		require.NoError(t, b.Undo(t.Context(), a))
		nothingLeft(t, b.client, key)
		f.heal()
		_, err = b.Acquire(t.Context(), a)
		require.ErrorIs(t, err, errUndone)
		released(t, taken(t, b, only(attempt(key, "A:2"))))
	}
}

// S14, by a Locker: whoever comes next need not wait for the ttl.
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

// S15: the undoing overtakes the acquire, which finds that it was undone.
func TestUndoOvertakesTheAcquire(t *testing.T) {
	t.Parallel()
	for _, queue := range []bool{true, false} {
		b, f, key := torn(t)
		released(t, taken(t, b, attempt(newKey(t), "A:0"))) // a session
		a := attempt(key, "A:1")
		a.Queue = queue
		late := straggling(t, b, f, a)
		require.NoError(t, b.Undo(t.Context(), a))
		require.NoError(t, late.arrives(t))
		nothingLeft(t, b.client, key)

		// Over the entry of another as well.
		lease := taken(t, b, attempt(key, "B:1"))
		requireHeld(t, b, attempt(key, "A:2"))
		a = attempt(key, "A:3")
		late = straggling(t, b, f, a)
		require.NoError(t, b.Undo(t.Context(), a))
		require.NoError(t, late.arrives(t))
		require.NoError(t, b.Undo(t.Context(), a))
		released(t, lease)
		lease = taken(t, b, attempt(key, "C:1"))
		released(t, lease)
	}
}

// The key was written, and how it stands is not known: it is undone. Many locks below it
// make this a second request.
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

// S16: an attempt that was sent again, and whose first copy comes after all is over.
func TestLateCopyOfAnAcquire(t *testing.T) {
	t.Parallel()
	b, f, key := torn(t)
	late := f.lateCopy(writes(key))
	lease := taken(t, b, attempt(key, "A:1"))
	released(t, lease)
	require.NoError(t, late.arrives(t))
	nothingLeft(t, b.client, key)
	released(t, taken(t, b, only(attempt(key, "B:1"))))
}

// The same where there is no release, as someone has deleted the key (S31).
func TestLateCopyOfALostAcquire(t *testing.T) {
	t.Parallel()
	b, f, key := torn(t)
	late := f.lateCopy(writes(key))
	lease := taken(t, b, attempt(key, "A:1"))
	_, err := b.client.Delete(t.Context(), key+"/", clientv3.WithPrefix())
	require.NoError(t, err)
	require.ErrorIs(t, lease.Renew(t.Context(), time.Second), lock.ErrLost)
	nothingPending(t, b, "A")
	require.NoError(t, late.arrives(t))
	keys, _ := below(t, b.client, key+"/")
	require.Empty(t, keys)
	released(t, taken(t, b, only(attempt(key, "B:1"))))
}

// S17: a release whose reply is lost has been done, and is a success; S18: what
// comes of it late frees no other.
func TestLostRepliesOfARelease(t *testing.T) {
	t.Parallel()
	b, f, key := torn(t)
	lease := taken(t, b, attempt(key, "A:1"))
	f.lose(2, deletes(key))
	released(t, lease)
	require.ErrorIs(t, lease.Release(t.Context(), 0), lock.ErrLost)

	lease = taken(t, b, attempt(key, "A:2"))
	require.Error(t, lease.Release(until(t, f.lose(100, deletes(key))), 0))
	f.heal()
	next := taken(t, b, attempt(key, "A:3")) // the same client's next
	released(t, lease)
	requireHeld(t, b, attempt(key, "B:1"))
	released(t, next)
}

// A copy of a release that comes late frees no other, be it the same client's.
func TestLateRelease(t *testing.T) {
	t.Parallel()
	b, f, key := torn(t)
	lease := taken(t, b, attempt(key, "A:1"))
	late := f.lateCopy(deletes(key))
	released(t, lease)
	next := taken(t, b, attempt(key, "A:2"))
	require.NoError(t, late.arrives(t))
	requireHeld(t, b, only(attempt(key, "B:1")))
	released(t, next)
}

// A queue entry that was given up without an answer may be deleted late.
// Whoever goes on with it writes it anew first, so that this hits nothing.
func TestLateGivingUpOfAnEntry(t *testing.T) {
	t.Parallel()
	b, f, key := torn(t)
	lease := taken(t, b, attempt(key, "B:1"))
	requireHeld(t, b, attempt(key, "A:1"))
	late, owed := f.late(deletes(key)), f.late(deletes(key)) // by the undo, and by the session for it
	leaving := attempt(key, "A:9")                           // by a Locker whose next waiter has come meanwhile
	require.Error(t, b.Undo(until(t, late.arrived), leaving))
	receive(t, "what is owed", owed.arrived)
	released(t, lease)
	lease = taken(t, b, attempt(key, "A:1"))
	require.NoError(t, late.arrives(t))
	require.NoError(t, owed.arrives(t))
	requireHeld(t, b, only(attempt(key, "B:2")))
	released(t, lease)
}

// G10: the queue entry serves the next in line, whatever its ttl.
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

	// Given up for good, by one that never asked.
	require.NoError(t, b.Undo(t.Context(), attempt(key, "C:3")))
	require.NoError(t, b.Undo(t.Context(), attempt(key, "D:1")))
	require.NoError(t, b.Undo(t.Context(), attempt(key, "B:4")))
	_, values = below(t, c, key+"/")
	require.Equal(t, []string{"B:3"}, values)
	require.NoError(t, b.Undo(t.Context(), attempt(key, "B:3")), "what it took is freed, too")
	require.ErrorIs(t, lease.Renew(t.Context(), time.Second), lock.ErrLost)
	nothingLeft(t, c, key)
}
