package zklock

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/internal/testserver"
	"github.com/lockgen/lockgen/runtime/driver"
)

// A process is known as long as the session of its lock lives, or until it is forgotten; it
// costs no session, and is neither a lock nor in the way of one.
func TestRegister(t *testing.T) {
	t.Parallel()
	addr, root := testserver.ZooKeeper(t), newRoot(t)
	conn, b, other := admin(t, addr), newBackend(t, root, addr), newBackend(t, root, addr)
	p := &driver.Process{ID: "6c1a5ad2-7f0b-8c57-9e0e-6a3a0a9d2f11", Name: "till 3", Host: "db7", PID: 4711}
	known := func() *driver.Process {
		t.Helper()
		got, err := other.Process(t.Context(), p.ID)
		require.NoError(t, err)
		return got
	}
	require.NoError(t, b.Register(t.Context(), p, second))
	require.Nil(t, known(), "without a lock there is no session")

	c := newClient(t, b)
	l := c.take(c.attempt("k", long))
	sessions := len(b.sessions.All())
	for range 2 {
		require.NoError(t, b.Register(t.Context(), p, second))
		require.Equal(t, p, known())
	}
	require.Len(t, b.sessions.All(), sessions)
	require.NoError(t, b.Register(t.Context(), p, 0))
	require.Nil(t, known())
	require.NoError(t, b.Register(t.Context(), p, 0), "it is gone already")

	require.NoError(t, b.Register(t.Context(), p, second))
	_, stat, err := conn.Get(b.processNode(p.ID))
	require.NoError(t, err)
	require.NotZero(t, stat.EphemeralOwner, "it ends with the session")

	named := c.take(c.attempt(processesName, long))
	keys := []string{}
	for info, err := range other.Locks(t.Context(), "*") {
		require.NoError(t, err)
		keys = append(keys, info.Key)
	}
	require.ElementsMatch(t, []string{"k", processesName}, keys)
	free(t, named)
	free(t, l)
}
