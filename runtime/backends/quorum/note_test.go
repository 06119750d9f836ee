package quorum

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/driver"
)

// Note returns the text that a majority of the members has, even if other members have an older one.
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
		synctest.Wait() // for the last member
		put(members["b"].(driver.Noter), "old")
		text, err := b.Note(t.Context(), "wait/k")
		require.NoError(t, err)
		require.Equal(t, "new", text)
		put(members["c"].(driver.Noter), "older")
		_, err = b.Note(t.Context(), "wait/k")
		require.ErrorContains(t, err, "no majority")
	})
}

// lateNotes delays each note by the next of delays.
type lateNotes struct {
	*memlock.Backend
	delays []time.Duration
}

func (l *lateNotes) PutNote(ctx context.Context, name, text string, ttl time.Duration) error {
	if len(l.delays) > 0 {
		delay := l.delays[0]
		l.delays = l.delays[1:]
		time.Sleep(delay)
	}
	return l.Backend.PutNote(ctx, name, text, ttl)
}

// A member that is late with a note does not overwrite a later note with it.
func TestNotesAreInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(map[string]driver.Backend{"a": memlock.New(),
			"b": &lateNotes{memlock.New(), []time.Duration{0, time.Second}}, "c": &lateNotes{memlock.New(), []time.Duration{time.Second / 2}}})
		b.Attach()
		defer b.Close()
		for _, text := range []string{"old", "new"} {
			require.NoError(t, b.PutNote(t.Context(), "wait/k", text, time.Minute))
		}
		time.Sleep(3 * time.Second / 4)
		text, err := b.Note(t.Context(), "wait/k")
		require.NoError(t, err)
		require.Equal(t, "new", text)
	})
}
