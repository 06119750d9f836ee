package enginetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
)

func TestOneOwnerAtATime(t *testing.T) {
	each(t, nil, func(t *testing.T, s *site) {
		one, other := s.backend(), s.backend()
		a := attempt("seckill:1", time.Minute)
		l := acquire(t, one, a)
		require.Greater(t, l.Deadline().Left(), 50*time.Second)

		b := attempt("seckill:1", time.Minute)
		isRow := onTables(variant{s.name, s.options.Strategy})
		b.Queue = isRow // otherwise it would wait in the server's queue
		_, err := other.Acquire(t.Context(), b)
		left := requireHeld(t, err).RetryAfter
		if isRow { // the database does not tell how long its own locks last
			require.InDelta(t, time.Minute.Seconds(), left.Seconds(), 5)
		}

		// G5: when it is sent again, it is the same acquisition.
		again := acquire(t, one, a)
		require.Equal(t, first(l), first(again))

		require.NoError(t, l.Renew(t.Context(), 2*time.Minute))
		require.Greater(t, l.Deadline().Left(), 110*time.Second)
		require.NoError(t, l.Release(t.Context(), first(l)))
		require.ErrorIs(t, l.Release(t.Context(), first(l)), lock.ErrLost)
		require.ErrorIs(t, l.Renew(t.Context(), time.Minute), lock.ErrLost)

		next := acquire(t, other, b)
		require.Greater(t, first(next), first(l))
		require.NoError(t, next.Release(t.Context(), first(next)))
	})
}
