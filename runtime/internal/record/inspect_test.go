package record_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
	"github.com/lockgen/lockgen/runtime/internal/record"
)

// At an engine without a clock, a process that describes a record again and again notices each
// renewal. It also notices when a lease and a place in the queue are no longer renewed.
func TestDescribeNoticesBeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, life := newHeld(true), engine.NewLife()
		life.Attach()
		defer life.Close(nil)
		l, other := record.NewClockless(h, life, nil), record.NewClockless(h, life, nil)
		lease, err := l.Acquire(t.Context(), acquisitionOf(driver.Fair, "k", "a:1"))
		require.NoError(t, err)
		_, err = l.Acquire(t.Context(), acquisitionOf(driver.Fair, "k", "a:2"))
		require.ErrorAs(t, err, new(*driver.HeldError))
		describe := func() *driver.LockInfo {
			info, err := other.Describe("k", h.run(record.Write{Key: "k", Look: true}).Value, 0)
			require.NoError(t, err)
			return info
		}
		for range 5 {
			info := describe()
			require.Len(t, info.Holders, 1)
			require.Equal(t, time.Second, info.Holders[0].Left)
			require.Zero(t, info.Holders[0].Since)
			require.Equal(t, 1, info.Waiters)
			time.Sleep(900 * time.Millisecond)
			require.InDelta(t, 0.1, describe().Holders[0].Left.Seconds(), 0.01)
			require.NoError(t, lease.Renew(t.Context(), time.Second))
			_, err = l.Acquire(t.Context(), acquisitionOf(driver.Fair, "k", "a:2"))
			require.ErrorAs(t, err, new(*driver.HeldError))
		}
		require.Len(t, describe().Holders, 1)
		time.Sleep(time.Minute)
		require.Empty(t, describe().Holders)
		require.Zero(t, describe().Waiters)
	})
}
