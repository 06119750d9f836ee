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

// sessionFor returns the session of locker for leases of length ttl, granted.
func sessionFor(t testing.TB, b *Backend, locker string, ttl time.Duration) *session {
	t.Helper()
	a := attempt(newKey(t), newID(locker))
	a.TTL = ttl
	lease := taken(t, b, a)
	released(t, lease)
	return lease.(*lease_).session
}

// patient is torn, with requests that are never sent again.
func patient(t testing.TB, addr string) (*Backend, *faults, string) {
	f := &faults{}
	b := newBackend(t, addr, withFaults(f))
	b.options.AttemptTimeout = time.Hour
	return b, f, newKey(t)
}

// straggling has an acquire of a give up while its request is under way, and returns
// that. b is patient.
func straggling(t testing.TB, b *Backend, f *faults, a *driver.Acquisition) *heldBack {
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

// S15: the tombstone of what was undone lasts for longer than a request may be on its way,
// whatever becomes of the sessions; then it goes.
func TestTombstoneOutlastsTheSessions(t *testing.T) {
	t.Parallel()
	b, f, key := patient(t, shared(t))
	c, a := admin(t, shared(t)), attempt(key, "A:1")
	create := straggling(t, b, f, a)
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
	require.InDelta(t, straggler.Seconds(), left.TTL, 5)
}

// G10: an undo that comes late leaves the queue entry to the later acquisition that
// waits there, and its watch.
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

// A later one that does not wait is no reason to keep the entry: it would stand there for
// nobody, and get the lock.
func TestUndoBesideALaterTry(t *testing.T) {
	t.Parallel()
	b, f, key := patient(t, shared(t))
	other := newBackend(t, shared(t))
	for _, unanswered := range []bool{false, true} {
		lease := taken(t, other, attempt(key, newID("B")))
		old := attempt(key, newID("A"))
		requireHeld(t, b, old)
		requireHeld(t, b, only(attempt(key, newID("A"))))
		old.MayHaveRun = unanswered
		require.NoError(t, b.Undo(t.Context(), old))
		queued(t, b.client, key, 1)
		released(t, lease)
		released(t, taken(t, other, only(attempt(key, newID("B")))))
	}
	// It took the entry over, as that owned the lock by then, and was told nothing.
	for _, last := range []int{0, 1} {
		lease := taken(t, other, attempt(key, newID("B")))
		old, try := attempt(key, newID("A")), only(attempt(key, newID("A")))
		requireHeld(t, b, old)
		released(t, lease)
		require.NoError(t, straggling(t, b, f, try).arrives(t))
		undos := []*driver.Acquisition{old, try}
		require.NoError(t, b.Undo(t.Context(), undos[1-last]))
		require.NoError(t, b.Undo(t.Context(), undos[last]))
		released(t, taken(t, other, only(attempt(key, newID("B")))))
	}
	nothingLeft(t, b.client, key)
}

// alarm has the server at addr refuse what needs space, or take it again.
func alarm(t testing.TB, c *clientv3.Client, action pb.AlarmRequest_AlarmAction) {
	t.Helper()
	_, err := pb.NewMaintenanceClient(c.ActiveConnection()).Alarm(t.Context(), &pb.AlarmRequest{Action: action, Alarm: pb.AlarmType_NOSPACE})
	require.NoError(t, err)
}

// etcd that is full takes no tombstone, so that the undo waits until there is space. It frees
// what needs none.
func TestNoSpaceForATombstone(t *testing.T) {
	t.Parallel()
	server := testserver.StartEtcd(t)
	c, other := admin(t, server.Addr()), newBackend(t, server.Addr())
	b, f, key := patient(t, server.Addr())
	a, next := attempt(key, "A:2"), attempt(key, "B:2")
	held := taken(t, b, attempt(newKey(t), "A:1"))
	require.NoError(t, straggling(t, b, f, a).arrives(t))
	requireHeld(t, other, next)
	alarm(t, c, pb.AlarmRequest_ACTIVATE)
	require.ErrorIs(t, b.Undo(t.Context(), a), rpctypes.ErrNoSpace)
	released(t, held)
	alarm(t, c, pb.AlarmRequest_DEACTIVATE)
	nothingPending(t, b, "A")
	require.Len(t, tombstonesOf(t, c, a), 1)
	released(t, taken(t, other, next))
}
