//go:build unix

package lock_test

import (
	"context"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

// An outage may leave thousands of clean-up tasks. The tasks that wait cost nothing for the task
// that runs: the processor time of this process grows linearly with their number, not
// quadratically. The best of three tries counts, because the garbage collector runs in some of
// them.
func TestCleanUpAfterAnOutage(t *testing.T) {
	const few, times, limit = 500, 40, 100
	best := 0.0
	for range 3 {
		one, many := cleanUp(t, few), cleanUp(t, few*times)
		if ratio := float64(many) / float64(one); best == 0 || ratio < best {
			best = ratio
		}
		t.Logf("%d take %v, %d take %v", few, one, few*times, many)
		if best < limit {
			return
		}
	}
	t.Fatalf("%d times as many clean-ups take %.0f times as long", times, best)
}

// cleanUp returns the processor time that it takes to clean up after n acquires that had no answer.
// Each undo has failed once before the engine is back.
func cleanUp(t *testing.T, n int) (took time.Duration) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		b.onAcquire = func(context.Context, *driver.Acquisition, func() (driver.Lease, error)) (driver.Lease, error) {
			return nil, lock.ErrIndeterminate
		}
		healed := make(chan struct{})
		b.onUndo = func(ctx context.Context, _ *driver.Acquisition) error {
			select {
			case <-healed:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		l := lock.New(b, nil)
		begin := processorTime(t)
		for i := range n {
			_, _, err := l.Acquire(t.Context(), nil, strconv.Itoa(i))
			requireOnly(t, lock.ErrIndeterminate, err)
		}
		time.Sleep(3 * time.Second)
		close(healed)
		require.NoError(t, l.Close(t.Context()))
		require.Greater(t, b.undos.Load(), int64(2*n))
		took = processorTime(t) - begin
	})
	return took
}

func processorTime(t *testing.T) time.Duration {
	var used syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
