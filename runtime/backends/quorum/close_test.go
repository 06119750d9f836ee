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

// mute is a member that answers neither a Ping nor a note.
type mute struct{ *memlock.Backend }

func (mute) Ping(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func (mute) PutNote(ctx context.Context, _, _ string, _ time.Duration) error {
	<-ctx.Done()
	return ctx.Err()
}

func (mute) Note(ctx context.Context, _ string) (string, error) {
	<-ctx.Done()
	return "", ctx.Err()
}

// A member is silent to calls whose contexts never end. The majority answers them, and Close ends
// what is left of them.
func TestCloseBesideASilentMember(t *testing.T) {
	for name, ask := range map[string]func(*Backend) error{
		"Ping":    func(b *Backend) error { return b.Ping(context.Background()) },
		"PutNote": func(b *Backend) error { return b.PutNote(context.Background(), "wait/k", "text", time.Minute) },
		"Note":    func(b *Backend) error { _, err := b.Note(context.Background(), "wait/k"); return err },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := New(map[string]driver.Backend{"a": memlock.New(), "b": memlock.New(), "c": mute{memlock.New()}}, Options{LongestTTL: time.Minute})
				b.Attach()
				require.NoError(t, ask(b))
				begun := time.Now()
				require.NoError(t, b.Close())
				require.LessOrEqual(t, time.Since(begun), closeLimit)
			})
		})
	}
}

// A member is late with a note that a majority has, and whose caller has gone. It gets the note all the same.
func TestNoteReachesALateMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := &patient{Backend: memlock.New()}
		b := New(map[string]driver.Backend{"a": memlock.New(), "b": memlock.New(), "c": late}, Options{LongestTTL: time.Minute})
		b.Attach()
		defer b.Close()
		ctx, cancel := context.WithCancel(t.Context())
		require.NoError(t, b.PutNote(ctx, "wait/k", "text", time.Minute))
		cancel()
		time.Sleep(time.Second)
		text, err := late.Note(t.Context(), "wait/k")
		require.NoError(t, err)
		require.Equal(t, "text", text)
	})
}

// patient is a member that is late with notes, and obeys their contexts.
type patient struct{ *memlock.Backend }

func (p *patient) PutNote(ctx context.Context, name, text string, ttl time.Duration) error {
	select {
	case <-time.After(100 * time.Millisecond):
		return p.Backend.PutNote(ctx, name, text, ttl)
	case <-ctx.Done():
		return ctx.Err()
	}
}
