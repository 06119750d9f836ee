package memlock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/driver"
)

func subscribed(t *testing.T, b *memlock.Backend, key, id string) driver.Subscription {
	t.Helper()
	s, err := b.Subscribe(t.Context(), attempt(key, id))
	require.NoError(t, err)
	return s
}

func noticed(s driver.Subscription) bool {
	select {
	case <-s.C():
		return true
	default:
		return false
	}
}

// G9, G10: a release wakes the Locker that has waited longest, and keeps the key for it for a
// moment. After that any Locker may take it.
func TestAReleaseGivesTheTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memlock.New()
		lease := taken(t, b, attempt("k", "A:1"))
		first, second := subscribed(t, b, "k", "B:1"), subscribed(t, b, "k", "C:1")
		require.False(t, noticed(first))
		require.NoError(t, lease.Release(t.Context(), firstToken(lease)))
		require.True(t, noticed(first))
		require.False(t, noticed(second))
		requireHeld(t, b, attempt("k", "A:2"), 100*time.Millisecond)
		requireHeld(t, b, attempt("k", "C:2"), 100*time.Millisecond)
		lease = taken(t, b, attempt("k", "B:2"))

		// Lockers get their turns one after the other, and a turn that is not used ends soon.
		require.NoError(t, lease.Release(t.Context(), firstToken(lease)))
		require.True(t, noticed(second))
		requireHeld(t, b, attempt("k", "B:3"), 100*time.Millisecond)
		time.Sleep(100 * time.Millisecond)
		lease = taken(t, b, attempt("k", "A:3"))
		first.Close()
		second.Close()
		time.Sleep(time.Microsecond)
		require.NoError(t, lease.Release(t.Context(), firstToken(lease)))
		require.Zero(t, b.Records())
	})
}

// A turn that comes to a subscription that is being closed is passed on.
func TestATurnIsPassedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memlock.New()
		lease := taken(t, b, attempt("k", "A:1"))
		first, second := subscribed(t, b, "k", "B:1"), subscribed(t, b, "k", "C:1")
		require.NoError(t, lease.Release(t.Context(), firstToken(lease)))
		first.Close()
		require.True(t, noticed(second))
		requireHeld(t, b, attempt("k", "A:2"), 100*time.Millisecond)
		second.Close()
		taken(t, b, attempt("k", "A:3"))
		first.Close() // a second Close does nothing
	})
}

// Undo wakes a waiter like a release.
func TestUndoGivesTheTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memlock.New()
		taken(t, b, attempt("k", "A:1"))
		waiting := subscribed(t, b, "k", "B:1")
		require.NoError(t, b.Undo(t.Context(), attempt("k", "A:1")))
		require.True(t, noticed(waiting))
		waiting.Close()
	})
}

// A subscription to a key that nobody holds leaves nothing behind either.
func TestSubscriptionToAFreeKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memlock.New()
		s := subscribed(t, b, "k", "B:1")
		taken(t, b, attempt("k", "A:1"))
		s.Close()
		require.Equal(t, 1, b.Records())
		s = subscribed(t, b, "k2", "B:1")
		s.Close()
		require.Equal(t, 1, b.Records())
	})
}

// A Locker that takes a key for which others wait is told of them, even if they do not try again.
func TestWantedFromTheBeginning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memlock.New()
		lease := taken(t, b, attempt("k", "A:1"))
		first, second := subscribed(t, b, "k", "B:1"), subscribed(t, b, "k", "C:1")
		defer second.Close()
		require.NoError(t, lease.Release(t.Context(), firstToken(lease)))
		asked, told := attempt("k", "B:1"), 0
		lease = taken(t, b, asked)
		b.NotifyWanted(asked, func() { told++ })
		require.Equal(t, 1, told, "C waits")
		first.Close()
		require.NoError(t, lease.Release(t.Context(), firstToken(lease)))
		asked = attempt("k", "C:1")
		taken(t, b, asked)
		b.NotifyWanted(asked, func() { told++ })
		require.Equal(t, 1, told, "nobody else waits")
	})
}
