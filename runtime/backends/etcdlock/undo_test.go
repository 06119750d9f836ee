package etcdlock

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	lock "github.com/lockgen/lockgen/runtime"
)

// marksOf returns the leases, in hex, on which a is marked as undone.
func marksOf(t testing.TB, c *clientv3.Client, a *lock.Acquisition) []string {
	t.Helper()
	leases, _ := below(t, c, a.Key+".lockgen/undone/"+a.ID+"/")
	return leases
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

// straggling has an acquire of a give up while its request is under way, and returns
// that.
func straggling(t testing.TB, b *Backend, f *faults, a *lock.Acquisition) *heldBack {
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
	require.True(t, a.Unanswered)
	return late
}

// revokes matches the request that gives s back.
func revokes(s *session) match {
	return func(req any) bool {
		r, ok := req.(*pb.LeaseRevokeRequest)
		return ok && r.ID == s.id
	}
}

// S15: the mark of what was undone lasts as long as the session in which an attempt may be
// on its way, whatever becomes of the Locker's other sessions.
func TestMarkOutlastsOtherSessions(t *testing.T) {
	t.Parallel()
	b, f, key := torn(t)
	a := attempt(key, "A:1")
	mine, other := sessionFor(t, b, "A", a.TTL), sessionFor(t, b, "A", 2*a.TTL)
	create := straggling(t, b, f, a)
	revoke := f.late(revokes(other))
	other.end(errIdle)
	receive(t, "the other session's end", revoke.arrived)
	require.NoError(t, b.Undo(t.Context(), a))
	_ = revoke.arrives(t) // or it was sent again
	eventually(t, "the other session's marks go along", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.dying) == 0
	})
	require.Equal(t, []string{mine.suffix}, marksOf(t, b.client, a))
	require.NoError(t, create.arrives(t))
	keys, _ := below(t, b.client, key+"/")
	require.Empty(t, keys)
	released(t, taken(t, b, only(attempt(key, "B:1"))))
}
