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

// An engine waits for another server where the caller may wait, and else fails at once, as redislock does. Who takes
// many locks may wait.
func TestManyWhileAServerIsReplaced(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBatching()
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

// The first answer about many locks is that the engine may grant none yet, and it comes when the wait is over: nobody
// knows that another holds one.
func TestManyEndInAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBatching()
		b.onAcquire = func(context.Context, *driver.Acquisition, func() (driver.Lease, error)) (driver.Lease, error) {
			time.Sleep(60 * time.Millisecond)
			return nil, engine.NotYet(time.Second, "a switch")
		}
		l := newLocker(t, b, nil)
		_, _, err := l.AcquireAll(t.Context(), numbered(20, &lock.Policy{Wait: 50 * time.Millisecond})...)
		requireOnly(t, lock.ErrUnavailable, err)
	})
}
