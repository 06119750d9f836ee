package enginetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/runtime/backends/sqllock"
	"github.com/lockgen/lockgen/runtime/driver"
)

// After a token was raised, the next lease has a higher one. A process that has lost the lock raises nothing.
func TestRaiseToken(t *testing.T) {
	each(t, nil, func(t *testing.T, s *site) {
		b := s.backend()
		l := acquire(t, b, attempt("raised", time.Minute))
		least := first(l) + uint64(time.Hour.Microseconds())*driver.TokensPerMicrosecond
		require.NoError(t, b.RaiseToken(t.Context(), l, least))
		require.NoError(t, b.RaiseToken(t.Context(), l, least), "a second time")
		s.exec("UPDATE " + s.options.Table + " SET expires = 1") // the lease is over without a release, which would write a token
		if s.options.Strategy != sqllock.Table {
			s.end("raised")
		}
		next := acquire(t, b, attempt("raised", time.Minute))
		require.ErrorIs(t, b.RaiseToken(t.Context(), l, least), driver.ErrLost)
		require.Greater(t, first(next), least)
		require.NoError(t, next.Release(t.Context(), first(next)))
	})
}
