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

// A key that a call has not asked for yet is free for others of the process.
func TestOthersTakeWhatIsNotAskedForYet(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBatching()
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

// The wait of each lock is its own: a short one cuts no request for another.
func TestWaitOfEachOfSeveral(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBatching()
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
