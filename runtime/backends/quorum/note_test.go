package quorum

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/driver"
)

// A note is what a majority of the members says, whoever of them is behind.
func TestNoteOfAMajority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		members := map[string]driver.Backend{"a": memlock.New(), "b": memlock.New(), "c": memlock.New()}
		b := New(members)
		b.Attach()
		defer b.Close()
		put := func(n driver.Noter, text string) {
			require.NoError(t, n.PutNote(t.Context(), "wait/k", text, time.Minute))
		}
		put(b, "new")
		synctest.Wait() // for the last of them
		put(members["b"].(driver.Noter), "old")
		text, err := b.Note(t.Context(), "wait/k")
		require.NoError(t, err)
		require.Equal(t, "new", text)
		put(members["c"].(driver.Noter), "older")
		_, err = b.Note(t.Context(), "wait/k")
		require.ErrorContains(t, err, "no majority")
	})
}
