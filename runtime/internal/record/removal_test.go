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

// slowWrites is a clockless engine that takes a millisecond for a write, and counts the writes that
// are under way at the same time.
type slowWrites struct {
	*held
	now, most atomic.Int64 // how many writes are under way, and the most that were
}

func (c *slowWrites) Swap(ctx context.Context, w record.Write) (record.Answer, error) {
	if now := c.now.Add(1); now > c.most.Load() {
		c.most.Store(now)
	}
	defer c.now.Add(-1)
	time.Sleep(time.Millisecond)
	return c.held.Swap(ctx, w)
}

// Records that are due at the same time, for example after an outage, are removed one after the
// other.
func TestKeptRecordsAreRemovedInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, life := &slowWrites{held: newHeld(true)}, engine.NewLife()
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
