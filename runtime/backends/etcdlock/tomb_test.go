package etcdlock

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// marked has a session of a second or two with a mark that is to go with the next
// keep-alive.
func marked(t testing.TB, b *Backend, key string) *session {
	t.Helper()
	s := sessionFor(t, b, "A", time.Second)
	a := attempt(key, "A:1")
	a.MayHaveRun = true
	require.NoError(t, b.Undo(t.Context(), a))
	require.Len(t, marksOf(t, b.client, a), 1)
	s.use() // so that it is kept
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tombs[0].at = time.Now().Add(-2 * straggler)
	return s
}

// sweeps matches a transaction that removes the marks at key.
func sweeps(key string) match {
	return func(req any) bool {
		t, ok := req.(*pb.TxnRequest)
		return ok && len(t.Success) > 0 &&
			strings.HasPrefix(string(t.Success[0].GetRequestDeleteRange().GetKey()), key+".lockgen/undone/")
	}
}

// No keep-alive waits for the removal of a mark, which may take long while etcd does not
// write, and does not end the session.
func TestSweepDelaysNoKeepAlive(t *testing.T) {
	t.Parallel()
	b, f, key := torn(t)
	b.options.AttemptTimeout = time.Hour
	s := marked(t, b, key)
	late := f.late(sweeps(key))
	receive(t, "the removal", late.arrived)
	for range 6 { // for twice as long as the session lasts without
		before := s.deadline.Load()
		eventually(t, "a keep-alive", func() bool { return !s.alive() || s.deadline.Load() != before })
		require.True(t, s.alive())
	}
	_ = late.arrives(t)
}

// A mark that could not be removed is tried again.
func TestSweepIsTriedAgain(t *testing.T) {
	t.Parallel()
	b, f, key := torn(t)
	b.options.AttemptTimeout = 100 * time.Millisecond
	marked(t, b, key)
	late := f.late(sweeps(key))
	receive(t, "the removal", late.arrived)
	eventually(t, "it is given up, and another done", func() bool { return len(marksOf(t, b.client, attempt(key, "A:1"))) == 0 })
	require.NoError(t, late.arrives(t))
}

// A mark that may not be removed any more, as a right has ended, keeps no other, and is not
// tried for ever.
func TestSweepOfAMarkThatIsRefused(t *testing.T) {
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
	for i := range s.tombs {
		s.tombs[i].at = time.Now().Add(-2 * straggler)
	}
	s.mu.Unlock()
	s.sweep()
	eventually(t, "an end of it", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return !s.sweeping
	})
	for _, key := range keys {
		marks, _ := below(t, b.client, key+".lockgen/undone/")
		require.Equal(t, key == bad, len(marks) == 1)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Empty(t, s.tombs)
}
