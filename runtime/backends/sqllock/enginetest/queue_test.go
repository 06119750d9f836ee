package enginetest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/internal/lagmeter"
)

// Processes that died while they waited are many after days of one leader: they
// keep a lock that is free from the living for two seconds, and not for each.
func TestDeadWaitersKeepAFreeLockBriefly(t *testing.T) {
	meter := lagmeter.Start()
	defer meter.Stop()
	each(t, onTables, func(t *testing.T, s *site) {
		b := s.backend()
		l := acquire(t, b, attempt("k", time.Minute))
		for range 12 {
			_, err := b.Acquire(t.Context(), attempt("k", time.Minute))
			requireHeld(t, err)
		}
		last := attempt("k", time.Minute)
		_, err := b.Acquire(t.Context(), last)
		requireHeld(t, err)
		require.NoError(t, l.Release(t.Context(), first(l)))

		begin := time.Now()
		_, err = b.Acquire(t.Context(), last)
		require.InDelta(t, 2, requireHeld(t, err).RetryAfter.Seconds(), 0.2+meter.Since(begin).Seconds())
		time.Sleep(2 * time.Second)
		l = acquire(t, b, last)
		require.Zero(t, s.number("SELECT LENGTH(waiting) FROM "+s.options.Table), "the dead have gone")
		require.NoError(t, l.Release(t.Context(), first(l)))
	})
}

// G6: an acquisition that is undone while it is about to join the queue is not in it afterwards.
func TestUndoneBeforeItJoins(t *testing.T) {
	each(t, onTables, func(t *testing.T, s *site) {
		w, b := s.ready()
		l := acquire(t, s.backend(), attempt("k", time.Minute))
		a := attempt("k", time.Minute)
		undone := *a
		undone.MayHaveRun = true
		w.meet(func(text string) error {
			if strings.Contains(text, "SET waiting = ") {
				return s.backend().Undo(context.Background(), &undone)
			}
			return nil
		})
		_, err := b.Acquire(t.Context(), a)
		require.ErrorContains(t, err, "undone")
		require.Zero(t, s.number("SELECT LENGTH(waiting) FROM "+s.options.Table+" WHERE name = "+s.param(1), []byte("k")))
		require.NoError(t, l.Release(t.Context(), first(l)))
	})
}
