package etcdlock

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// withOldTombstone has a session of a second or two with a tombstone that is to go with the next
// keep-alive.
func withOldTombstone(t testing.TB, b *Backend, key string) *session {
	t.Helper()
	s := sessionFor(t, b, "A", time.Second)
	a := attempt(key, "A:1")
	a.MayHaveRun = true
	require.NoError(t, b.Undo(t.Context(), a))
	require.Len(t, tombstonesOf(t, b.client, a), 1)
	s.Use() // so that it is kept
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tombstones[0].at = time.Now().Add(-2 * straggler)
	return s
}

// collects matches a transaction that deletes the tombstones at key.
func collects(key string) match {
	return func(req any) bool {
		t, ok := req.(*pb.TxnRequest)
		return ok && len(t.Success) > 0 &&
			strings.HasPrefix(string(t.Success[0].GetRequestDeleteRange().GetKey()), key+".lockgen/undone/")
	}
}

// No keep-alive waits for the deletion of a tombstone, which may take long while etcd does not
// write, and does not end the session.
func TestCollectingDelaysNoKeepAlive(t *testing.T) {
	t.Parallel()
	b, f, key := torn(t)
	b.options.AttemptTimeout = time.Hour
	s := withOldTombstone(t, b, key)
	late := f.late(collects(key))
	receive(t, "the deletion", late.arrived)
	for range 6 { // for twice as long as the session lasts without
		before := s.Deadline()
		eventually(t, "a keep-alive", func() bool { return !s.Alive() || s.Deadline() != before })
		require.True(t, s.Alive())
	}
	_ = late.arrives(t)
}

// A tombstone that could not be deleted is tried again.
func TestCollectingIsTriedAgain(t *testing.T) {
	t.Parallel()
	b, f, key := torn(t)
	b.options.AttemptTimeout = 100 * time.Millisecond
	withOldTombstone(t, b, key)
	late := f.late(collects(key))
	receive(t, "the deletion", late.arrived)
	eventually(t, "it is given up, and another done", func() bool { return len(tombstonesOf(t, b.client, attempt(key, "A:1"))) == 0 })
	require.NoError(t, late.arrives(t))
}

// Tombstones that may not be deleted any more, as a right has ended, are not tried for ever: they
// go with the session.
func TestTombstoneThatIsRefused(t *testing.T) {
	t.Parallel()
	keys := []string{newKey(t), newKey(t), newKey(t)}
	bad := keys[1]
	b := newBackend(t, shared(t), forbidden(func(req any) bool {
		r, ok := req.(*pb.TxnRequest)
		return ok && slices.ContainsFunc(r.Success, func(op *pb.RequestOp) bool {
			return strings.HasPrefix(string(op.GetRequestDeleteRange().GetKey()), bad+".lockgen/undone/")
		})
	}))
	s := sessionFor(t, b, "A", 10*time.Second)
	for _, key := range keys {
		a := attempt(key, newID("A"))
		a.MayHaveRun = true
		require.NoError(t, b.Undo(t.Context(), a))
	}
	s.mu.Lock()
	for i := range s.tombstones {
		s.tombstones[i].at = time.Now().Add(-2 * straggler)
	}
	s.mu.Unlock()
	s.collect()
	eventually(t, "an end of it", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return !s.collecting
	})
	for _, key := range keys {
		left, _ := below(t, b.client, key+".lockgen/undone/")
		require.Len(t, left, 1)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Empty(t, s.tombstones)
}
