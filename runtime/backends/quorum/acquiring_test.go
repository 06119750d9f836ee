package quorum

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// refuse returns a Backend whose members keep places or not, and acquisitions of a key that another holds
// at all of them, each of which was refused once or several times.
func refuse(t *testing.T, places bool) (b *Backend, refused []*driver.Acquisition) {
	members := map[string]driver.Backend{}
	for _, name := range []string{"a", "b", "c"} {
		m := &queued{Backend: memlock.New()}
		if places {
			m.places = map[string]bool{}
		}
		members[name] = m
	}
	b = New(members, Options{LongestTTL: time.Hour})
	b.Attach()
	_, err := b.Acquire(t.Context(), &driver.Acquisition{Key: "key", ID: "8f0bdbd2-0000-8000-8000-000000000002:1", TTL: time.Hour, Tokens: 1})
	require.NoError(t, err)
	synctest.Wait() // all members have granted it
	for n := range 100 {
		a := &driver.Acquisition{Key: "key", ID: fmt.Sprintf("8f0bdbd2-0000-8000-8000-000000000001:%d", n+1), TTL: time.Minute, Tokens: 1, Queue: true}
		for range 1 + n%3 {
			_, err := b.Acquire(t.Context(), a)
			require.NotNil(t, engine.HeldBy(err), "%v", err)
			time.Sleep(2 * remembered) // so that all members are asked
		}
		refused = append(refused, a)
	}
	return b, refused
}

// Who was only refused, by members that keep no places, need not be undone, and nothing is remembered of it.
func TestRefusedIsNotUndone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, refused := refuse(t, false)
		defer func() { require.NoError(t, b.Close()) }()
		for _, a := range refused {
			require.False(t, a.MayHaveRun || a.MayBeGranted)
		}
		b.change(func() { require.Empty(t, b.under) })
	})
}

// Places are remembered until they are given up.
func TestPlacesAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, refused := refuse(t, true)
		defer func() { require.NoError(t, b.Close()) }()
		b.change(func() { require.Len(t, b.under, len(refused)) })
		for _, a := range refused {
			require.False(t, a.MayHaveRun)
			require.True(t, a.MayBeGranted) // so that it is undone
			require.NoError(t, b.Undo(t.Context(), a))
		}
		synctest.Wait()
		b.change(func() { require.Empty(t, b.under) })
		require.Zero(t, b.gate("key").Backend.(*queued).kept())
	})
}
