package lock_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
)

// An outage may leave thousands to clear up; what waits costs what is done nothing.
// By the machine's clock: to look at all of them for each one takes a minute.
func TestClearingUpAfterAnOutage(t *testing.T) {
	const n = 40_000
	b := newScripted()
	b.onAcquire = func(context.Context, *lock.Acquisition, func() (lock.Lease, error)) (lock.Lease, error) {
		return nil, lock.ErrIndeterminate
	}
	healed := make(chan struct{})
	b.onUndo = func(ctx context.Context, _ *lock.Acquisition) error {
		select {
		case <-healed:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	l := lock.New(b, nil)
	began := time.Now()
	for i := range n {
		_, _, err := l.Acquire(t.Context(), nil, strconv.Itoa(i))
		requireOnly(t, lock.ErrIndeterminate, err)
	}
	close(healed)
	require.NoError(t, l.Close(t.Context()))
	require.GreaterOrEqual(t, b.undos.Load(), int64(n))
	require.Less(t, time.Since(began), 20*time.Second)
}
