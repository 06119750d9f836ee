package record_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/runtime/internal/engine"
	"github.com/lockgen/lockgen/runtime/internal/record"
)

// crowd is a clockless engine that takes a millisecond over a write.
type crowd struct {
	*held
	now, most atomic.Int64 // writes at once
}

func (c *crowd) Swap(ctx context.Context, w record.Write) (record.Answer, error) {
	if now := c.now.Add(1); now > c.most.Load() {
		c.most.Store(now)
	}
	defer c.now.Add(-1)
	time.Sleep(time.Millisecond)
	return c.held.Swap(ctx, w)
}

// Records that are due together, as after an outage, are removed one after the other.
func TestKeptRecordsAreRemovedInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, life := &crowd{held: newHeld(true)}, engine.NewLife()
		life.Attach()
		defer life.Close(nil)
		l := record.NewClockless(c, life, nil)
		var undos sync.WaitGroup
		for i := range 100 {
			a := acquisition(fmt.Sprint("k", i), "a:1")
			a.MayHaveRun = true
			undos.Go(func() { _ = l.Undo(t.Context(), a) })
		}
		undos.Wait()
		c.most.Store(0)
		time.Sleep(13 * time.Minute)
		synctest.Wait()
		c.mu.Lock()
		defer c.mu.Unlock()
		require.Empty(t, c.values)
		require.Equal(t, int64(1), c.most.Load())
	})
}
