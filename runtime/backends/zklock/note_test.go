package zklock

import (
	"context"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/internal/faultproxy"
	"github.com/lockgen/lockgen/internal/testserver"
)

// A note ends with the session of a lock that its process holds. It needs no session of its own. It
// is not a lock, and does not block one.
func TestNoteLivesOnASession(t *testing.T) {
	t.Parallel()
	addr, root := testserver.ZooKeeper(t), newRoot(t)
	conn, b, other := admin(t, addr), newBackend(t, root, addr), newBackend(t, root, addr)
	const name = "process/6c1a5ad2-7f0b-8c57-9e0e-6a3a0a9d2f11"
	require.ErrorIs(t, b.PutNote(t.Context(), name, "till 3", second), errNoSession)

	c := newClient(t, b)
	l := c.take(c.attempt("k", long))
	sessions := len(b.sessions.All())
	for range 2 {
		require.NoError(t, b.PutNote(t.Context(), name, "till 3", second))
		text, err := other.Note(t.Context(), name)
		require.NoError(t, err)
		require.Equal(t, "till 3", text)
	}
	require.LessOrEqual(t, len(b.sessions.All()), sessions) // a session that asked for the servers' limits may have ended
	at, err := b.noteNode(name)
	require.NoError(t, err)
	require.Equal(t, root+"/%note/process/6c1a5ad2-7f0b-8c57-9e0e-6a3a0a9d2f11", at)
	_, stat, err := conn.Get(at)
	require.NoError(t, err)
	require.NotZero(t, stat.EphemeralOwner, "the note must end with the session")

	require.NoError(t, b.PutNote(t.Context(), "wait/k", "x", second))
	named := []string{notesName}
	for _, key := range named {
		defer free(t, c.take(c.attempt(key, long)))
	}
	keys := []string{}
	for info, err := range other.Locks(t.Context(), "*") {
		require.NoError(t, err)
		keys = append(keys, info.Key)
	}
	require.ElementsMatch(t, append(named, "k"), keys)
	free(t, l)
}

// A note with a ttl of days does not end with its process.
func TestNoteForDays(t *testing.T) {
	t.Parallel()
	addr, root := testserver.ZooKeeper(t), newRoot(t)
	conn, b := admin(t, addr), newBackend(t, root, addr)
	c := newClient(t, b)
	defer free(t, c.take(c.attempt("k", long)))
	require.NoError(t, b.PutNote(t.Context(), "order/a > b", "x", 2*sessionNote))
	at, err := b.noteNode("order/a > b")
	require.NoError(t, err)
	require.Equal(t, root+"/%note/order/a > b", at)
	_, stat, err := conn.Get(at)
	require.NoError(t, err)
	require.Zero(t, stat.EphemeralOwner)
}

// Two processes create the same note at once. One of them gets an error.
func TestNotesAtOnce(t *testing.T) {
	t.Parallel()
	addr, _, p, c := proxied(t)
	conn, name := admin(t, addr), "order/a > b"
	require.NoError(t, c.PutNote(t.Context(), name, "first", 2*sessionNote)) // creates the directories
	at, err := c.noteNode(name)
	require.NoError(t, err)
	put := make(chan error, 1)
	late := p.Late(faultproxy.Op("create", at))
	go func() { put <- c.PutNote(context.WithoutCancel(t.Context()), name, "ours", 2*sessionNote) }()
	receive(t, "the create", late.Arrived())
	_, err = conn.Create(at, []byte("theirs"), zk.FlagPersistent, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	require.NoError(t, late.Deliver(t.Context()))
	require.ErrorIs(t, receive(t, "the put", put), zk.ErrNodeExists)
	text, err := c.Note(t.Context(), name)
	require.NoError(t, err)
	require.Equal(t, "theirs", text)
}
