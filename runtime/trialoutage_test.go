package lock_test

import (
	"context"
	"testing"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

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
