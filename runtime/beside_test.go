package lock_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

// Other calls of the process can take a key that a call has not requested yet.
func TestOthersTakeKeysNotRequestedYet(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBounded()
		b.most = 16
		b.onAcquire = func(ctx context.Context, _ *driver.Acquisition, do func() (driver.Lease, error)) (driver.Lease, error) {
			if err := wait(ctx, 10*time.Millisecond); err != nil {
				return nil, err
			}
			return do()
		}
		l := newLocker(t, b, nil)
		var all sync.WaitGroup
		all.Go(func() {
			_, held, err := l.AcquireAll(t.Context(), numbered(1000, nil)...)
			assert.NoError(t, err)
			assert.NoError(t, release(held))
		})
		time.Sleep(5 * time.Millisecond)
		_, held, err := l.Acquire(t.Context(), &lock.Policy{Try: true}, "k990")
		require.NoError(t, err)
		require.NoError(t, release(held))
		all.Wait()
	})
}

// Each lock of an AcquireAll has its own wait. A short wait does not cancel the request for another
// lock.
func TestWaitOfEachOfSeveral(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBounded()
		b.onAcquire = func(ctx context.Context, a *driver.Acquisition, do func() (driver.Lease, error)) (driver.Lease, error) {
			d := 100 * time.Millisecond
			if a.Key == "k000" {
				d = time.Millisecond
			}
			if err := wait(ctx, d); err != nil {
				return nil, err
			}
			return do()
		}
		l := newLocker(t, b, nil)
		reqs := append(numbered(1, &lock.Policy{Wait: 50 * time.Millisecond}), numbered(6, &lock.Policy{Wait: 10 * time.Second})[1:]...)
		_, held, err := l.AcquireAll(t.Context(), reqs...)
		require.NoError(t, err)
		require.NoError(t, release(held))
	})
}
