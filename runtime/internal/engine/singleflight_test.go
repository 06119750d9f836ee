package engine_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// A call that comes while a request is under way shares its answer, and waits no longer than its
// own context lasts.
func TestSingleFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s engine.SingleFlight
		life := engine.NewLife()
		life.Attach()
		asked, failed := 0, errors.New("no answer")
		ask := func(context.Context) error {
			asked++
			time.Sleep(time.Second)
			return failed
		}
		errs := make(chan error)
		for range 3 {
			go func() { errs <- s.Do(t.Context(), life, ask) }()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		require.ErrorIs(t, s.Do(ctx, life, ask), context.DeadlineExceeded)
		for range 3 {
			require.ErrorIs(t, <-errs, failed)
		}
		require.Equal(t, 1, asked)
		require.ErrorIs(t, s.Do(t.Context(), life, ask), failed)
		require.Equal(t, 2, asked)
		life.Close(nil)
		require.ErrorIs(t, s.Do(t.Context(), life, ask), driver.ErrClosed)
		require.Equal(t, 2, asked)
	})
}
