package etcdlock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/client/v3/namespace"

	"github.com/lockgen/lockgen/runtime/driver"
)

// A client whose interfaces are wrapped by clientv3/namespace works like any other: waiters are
// notified, and notes are found.
func TestClientWithNamespace(t *testing.T) {
	t.Parallel()
	client := newClient(t, []string{shared(t)})
	client.KV = namespace.NewKV(client.KV, "theirs/")
	client.Watcher = namespace.NewWatcher(client.Watcher, "theirs/")
	client.Lease = namespace.NewLease(client.Lease, "theirs/")
	b, plain := New(client), newBackend(t, shared(t))
	defer b.Close()
	for _, kind := range []driver.Kind{0, driver.Fair} {
		key := newKey(t)
		holds, waits := attempt(key, newID("holds")), attempt(key, newID("waits"))
		holds.Mode.Kind, waits.Mode.Kind = kind, kind
		l := taken(t, plain, holds)
		requireHeld(t, b, waits)
		sub, err := b.Subscribe(t.Context(), waits)
		require.NoError(t, err)
		released(t, l)
		receive(t, "a notice", sub.C())
		sub.Close()
		require.NoError(t, b.Undo(t.Context(), waits))
	}
	name := "wait/" + newKey(t)
	require.NoError(t, b.PutNote(t.Context(), name, "text", time.Minute))
	text, err := plain.Note(t.Context(), name)
	require.NoError(t, err)
	require.Equal(t, "text", text)
	require.NoError(t, b.PutNote(t.Context(), name, "", 0))
	text, err = plain.Note(t.Context(), name)
	require.NoError(t, err)
	require.Empty(t, text)
}
