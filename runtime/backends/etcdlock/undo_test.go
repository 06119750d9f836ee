package etcdlock

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

// tombstonesOf returns the tombstones of a.
func tombstonesOf(t testing.TB, c *clientv3.Client, a *driver.Acquisition) []string {
	t.Helper()
	keys, _ := below(t, c, a.Key+".lockgen/undone/"+a.ID+"/")
	return keys
}

// sessionFor returns the session of locker for leases of length ttl. etcd has granted it.
func sessionFor(t testing.TB, b *Backend, locker string, ttl time.Duration) *session {
	t.Helper()
	a := attempt(newKey(t), newID(locker))
	a.TTL = ttl
	lease := taken(t, b, a)
	released(t, lease)
	return lease.(*lease_).session
}

// withoutResends is like faulty, but the Backend never sends a request again.
func withoutResends(t testing.TB, addr string) (*Backend, *faults, string) {
	f := &faults{}
	b := newBackend(t, addr, withFaults(f))
	b.options.AttemptTimeout = time.Hour
	return b, f, newKey(t)
}

// lateAcquire has an acquire of a give up while its request is under way, and returns the
// request. b must be from withoutResends.
func lateAcquire(t testing.TB, b *Backend, f *faults, a *driver.Acquisition) *heldBack {
	t.Helper()
	late, done := f.late(writes(a.Key)), make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, err := b.Acquire(ctx, a)
		done <- err
	}()
	receive(t, "the request", late.arrived)
	cancel()
	require.ErrorIs(t, receive(t, "an answer", done), lock.ErrIndeterminate)
	require.True(t, a.MayHaveRun)
	return late
}

// S15: the tombstone of an undo lasts longer than a request may be under way,
// even if the sessions end. After that it is deleted.
func TestTombstoneOutlastsTheSessions(t *testing.T) {
	t.Parallel()
	b, f, key := withoutResends(t, shared(t))
	c, a := admin(t, shared(t)), attempt(key, "A:1")
	create := lateAcquire(t, b, f, a)
	require.NoError(t, b.Undo(t.Context(), a))
	require.NoError(t, create.arrives(t))
	keys, _ := below(t, c, key+"/")
	require.Empty(t, keys)
	_, err := b.Acquire(t.Context(), a)
	require.ErrorIs(t, err, errUndone)
	require.NoError(t, b.Close())
	resp, err := c.Get(t.Context(), key+".lockgen/", clientv3.WithPrefix())
	require.NoError(t, err)
	require.Len(t, resp.Kvs, 1)
	left, err := c.TimeToLive(t.Context(), clientv3.LeaseID(resp.Kvs[0].Lease))
	require.NoError(t, err)
	require.InDelta(t, tombstoneTTL.Seconds(), left.TTL, 5)
}

// G10: a late undo leaves the queue entry and its watch to the later acquisition that
// waits there.
func TestUndoBesideALaterOne(t *testing.T) {
	t.Parallel()
	b, other, key := newBackend(t, shared(t)), newBackend(t, shared(t)), newKey(t)
	lease := taken(t, other, attempt(key, "B:1"))
	old, a := attempt(key, "A:9"), attempt(key, "A:10")
	requireHeld(t, b, old)
	requireHeld(t, b, a)
	requireHeld(t, other, attempt(key, "C:1"))
	sub, err := b.Subscribe(t.Context(), a)
	require.NoError(t, err)
	defer sub.Close()
	for _, old.MayHaveRun = range []bool{false, true} {
		require.NoError(t, b.Undo(t.Context(), old))
	}
	_, values := below(t, b.client, key+"/")
	require.Equal(t, []string{"B:1", "A:10", "C:1"}, values)
	require.Empty(t, sub.C())
	released(t, lease)
	receive(t, "the release", sub.C())
	released(t, taken(t, b, a))
	released(t, taken(t, other, attempt(key, "C:1")))
}

// A later try is no reason to keep the entry. Nobody would use the entry, and it would get
// the lock.
func TestUndoBesideALaterTry(t *testing.T) {
	t.Parallel()
	b, f, key := withoutResends(t, shared(t))
	other := newBackend(t, shared(t))
	for _, unanswered := range []bool{false, true} {
		lease := taken(t, other, attempt(key, newID("B")))
		old := attempt(key, newID("A"))
		requireHeld(t, b, old)
		requireHeld(t, b, asTry(attempt(key, newID("A"))))
		old.MayHaveRun = unanswered
		require.NoError(t, b.Undo(t.Context(), old))
		queued(t, b.client, key, 1)
		released(t, lease)
		released(t, taken(t, other, asTry(attempt(key, newID("B")))))
	}
	// The try took the entry over, because the entry owned the lock by then, and had no answer.
	for _, last := range []int{0, 1} {
		lease := taken(t, other, attempt(key, newID("B")))
		old, try := attempt(key, newID("A")), asTry(attempt(key, newID("A")))
		requireHeld(t, b, old)
		released(t, lease)
		require.NoError(t, lateAcquire(t, b, f, try).arrives(t))
		undos := []*driver.Acquisition{old, try}
		require.NoError(t, b.Undo(t.Context(), undos[1-last]))
		require.NoError(t, b.Undo(t.Context(), undos[last]))
		released(t, taken(t, other, asTry(attempt(key, newID("B")))))
	}
	nothingLeft(t, b.client, key)
}

// alarm makes the server of c refuse requests that need space, or accept them again.
func alarm(t testing.TB, c *clientv3.Client, action pb.AlarmRequest_AlarmAction) {
	t.Helper()
	_, err := pb.NewMaintenanceClient(c.ActiveConnection()).Alarm(t.Context(), &pb.AlarmRequest{Action: action, Alarm: pb.AlarmType_NOSPACE})
	require.NoError(t, err)
}

// A full etcd accepts no tombstone, so the undo stays pending until there is space. Releases that
// need no space succeed.
func TestNoSpaceForATombstone(t *testing.T) {
	t.Parallel()
	server := testserver.StartEtcd(t)
	c, other := admin(t, server.Addr()), newBackend(t, server.Addr())
	b, f, key := withoutResends(t, server.Addr())
	a, next := attempt(key, "A:2"), attempt(key, "B:2")
	held := taken(t, b, attempt(newKey(t), "A:1"))
	require.NoError(t, lateAcquire(t, b, f, a).arrives(t))
	requireHeld(t, other, next)
	alarm(t, c, pb.AlarmRequest_ACTIVATE)
	require.ErrorIs(t, b.Undo(t.Context(), a), rpctypes.ErrNoSpace)
	released(t, held)
	alarm(t, c, pb.AlarmRequest_DEACTIVATE)
	nothingPending(t, b, "A")
	require.Len(t, tombstonesOf(t, c, a), 1)
	released(t, taken(t, other, next))
}
