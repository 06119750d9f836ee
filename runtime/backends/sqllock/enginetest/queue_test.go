package enginetest

import (
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
