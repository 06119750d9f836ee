package lock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// Like redislock, the engine waits for another server if the caller may wait, and otherwise fails
// at once. A call that takes many locks may wait.
func TestManyWhileAServerIsReplaced(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBounded()
		replaced := time.Now().Add(3 * time.Second)
		b.onAcquire = func(_ context.Context, a *driver.Acquisition, do func() (driver.Lease, error)) (driver.Lease, error) {
			if left := time.Until(replaced); left > 0 && !a.Queue {
				return nil, errors.New("connection refused")
			} else if left > 0 {
				time.Sleep(left)
			}
			return do()
		}
		l := newLocker(t, b, nil)
		_, held, err := l.AcquireAll(t.Context(), numbered(20, nil)...)
		require.NoError(t, err)
		require.NoError(t, held.Unlock())
	})
}

// The first answer about many locks, that the engine can't grant any yet, comes when the wait is
// over. So the error does not say that another process holds one.
func TestManyEndInAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBounded()
		b.onAcquire = func(context.Context, *driver.Acquisition, func() (driver.Lease, error)) (driver.Lease, error) {
			time.Sleep(60 * time.Millisecond)
			return nil, engine.NotYet(time.Second, "a switch")
		}
		l := newLocker(t, b, nil)
		_, _, err := l.AcquireAll(t.Context(), numbered(20, &lock.Policy{Wait: 50 * time.Millisecond})...)
		requireOnly(t, lock.ErrUnavailable, err)
	})
}
