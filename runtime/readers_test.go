package lock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

// A call that comes to read while another one asks the engine, and can't share what that is
// granted, since it is much longer or shorter than its own, does not wait for it to leave.
func TestReadersOfDifferentLengths(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		b.onAcquire = func(ctx context.Context, _ *driver.Acquisition, do func() (driver.Lease, error)) (driver.Lease, error) {
			if err := wait(ctx, time.Second); err != nil {
				return nil, err
			}
			return do()
		}
		l, begin := newLocker(t, b, nil), time.Now()
		lengths := []time.Duration{10 * time.Second, time.Minute, 5 * time.Second}
		together(len(lengths), func(i int) {
			time.Sleep(time.Duration(i) * 100 * time.Millisecond)
			p := &lock.Policy{Read: true, TTL: lengths[i]}
			require.NoError(t, l.Do(t.Context(), p, "k", func(context.Context) error {
				require.LessOrEqual(t, time.Since(begin), 3*time.Second)
				time.Sleep(time.Minute)
				return nil
			}))
		})
	})
}
