package record_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
	"github.com/lockgen/lockgen/runtime/internal/record"
)

// What happens while a watch that has failed does not stand again yet is told once it does.
func TestChangeBetweenTwoWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, life := newHeld(true), engine.NewLife()
		life.Attach()
		defer life.Close(nil)
		watches, second := 0, make(chan struct{})
		l := record.NewClockless(h, life, func(ctx context.Context, _ string, ready func(), _ func(string) int) error {
			if watches++; watches == 2 {
				close(second)
				time.Sleep(50 * time.Millisecond) // the change strikes in here
			}
			ready()
			if watches == 1 {
				time.Sleep(time.Millisecond)
				return errNoAnswer
			}
			<-ctx.Done()
			return ctx.Err()
		})
		s, err := l.Subscribe(t.Context(), acquisition("k", "a:1"))
		require.NoError(t, err)
		defer s.Close()
		<-second // the first has failed, and the second does not stand yet
		select {
		case <-s.C():
		default:
		}
		select {
		case <-s.C():
		case <-time.After(time.Second):
			t.Fatal("nobody is told once the second watch stands")
		}
	})
}

// A watch that fails before it stands is begun anew, for all that wait; with the last of them, or
// with the Backend, it ends.
func TestWatchThatFailsAtFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		life := engine.NewLife()
		life.Attach()
		var watches atomic.Int64
		l := record.NewClockless(newHeld(true), life, func(ctx context.Context, key string, ready func(), _ func(string) int) error {
			if watches.Add(1) < 3 || key != "k" {
				return errNoAnswer
			}
			ready()
			<-ctx.Done()
			return ctx.Err()
		})
		s, err := l.Subscribe(t.Context(), acquisition("k", "a:1"))
		require.NoError(t, err)
		require.EqualValues(t, 3, watches.Load())
		s.Close()

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = l.Subscribe(ctx, acquisition("m", "a:2"))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		before := watches.Load()
		time.Sleep(time.Minute)
		require.LessOrEqual(t, watches.Load(), before+1, "nobody waits")

		time.AfterFunc(time.Second, func() { life.Close(nil) })
		_, err = l.Subscribe(t.Context(), acquisition("m", "a:3"))
		require.ErrorIs(t, err, driver.ErrClosed)
		_, err = l.Subscribe(t.Context(), acquisition("k", "a:4"))
		require.ErrorIs(t, err, driver.ErrClosed)
	})
}
