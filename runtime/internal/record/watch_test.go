package record_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/runtime/internal/engine"
	"github.com/lockgen/lockgen/runtime/internal/record"
)

// If a watch has failed, changes before the next one is ready are reported once it is ready.
func TestChangeBetweenTwoWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, life := newHeld(true), engine.NewLife()
		life.Attach()
		defer life.Close(nil)
		watches, second := 0, make(chan struct{})
		l := record.NewClockless(h, life, func(ctx context.Context, _ string, ready func(), _ func(string) int) error {
			if watches++; watches == 2 {
				close(second)
				time.Sleep(50 * time.Millisecond) // the change happens in this time
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
		<-second // the first watch has failed, and the second is not ready yet
		select {
		case <-s.C():
		default:
		}
		select {
		case <-s.C():
		case <-time.After(time.Second):
			t.Fatal("the second watch is ready, and the subscriber got no notice")
		}
	})
}
