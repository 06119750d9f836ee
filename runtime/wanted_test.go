package lock_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

// wantedLease is a lease that can report that another process waits.
type wantedLease struct {
	driver.Lease
	wanted *atomic.Bool
}

func (l wantedLease) Wanted() bool { return l.wanted.Load() }

// A lease that another process wants is handed on for 1.5 ms in all; another lease for as long as
// Options.HandOff says.
func TestWantedLeaseIsHandedOnBriefly(t *testing.T) {
	for wanted, most := range map[bool]time.Duration{false: lock.DefaultHandOff, true: 1500 * time.Microsecond} {
		bubble(t, func(t *testing.T) {
			b := newScripted()
			var isWanted atomic.Bool
			b.onAcquire = func(_ context.Context, _ *driver.Acquisition, do func() (driver.Lease, error)) (driver.Lease, error) {
				l, err := do()
				if err != nil {
					return nil, err
				}
				return wantedLease{l, &isWanted}, nil
			}
			l := newLocker(t, b, nil)
			isWanted.Store(wanted)
			const sections, each = 100, time.Millisecond / 2
			concurrently(sections, func(int) {
				require.NoError(t, l.Do(t.Context(), nil, "k", func(context.Context) error {
					time.Sleep(each)
					return nil
				}))
			})
			perLease := int64(most / each)
			require.GreaterOrEqual(t, b.acquires.Load(), sections/(perLease+1)) // one hold is inside when the time is over
			require.LessOrEqual(t, b.acquires.Load(), sections/perLease+2)      // the first lease knows of no contention
		})
	}
}

// A waiter whose subscription covers the time since before its attempt does not try again before it
// gets a notice.
func TestNotifiedWaiterTriesOnce(t *testing.T) {
	for _, notified := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			b := newScripted()
			b.onAcquire = func(_ context.Context, _ *driver.Acquisition, do func() (driver.Lease, error)) (driver.Lease, error) {
				l, err := do()
				if held, ok := err.(*driver.HeldError); ok {
					held.Notified, held.RetryAfter = notified, time.Hour
				}
				return l, err
			}
			other := newLocker(t, b.Backend, nil)
			_, held := acquire(t, t.Context(), other, renewed, "k")
			l := newLocker(t, b, nil)
			done := make(chan error)
			go func() { done <- l.Do(t.Context(), nil, "k", func(context.Context) error { return nil }) }()
			time.Sleep(time.Second / 2)
			synctest.Wait()
			tries := int64(2)
			if notified {
				tries = 1
			}
			require.Equal(t, tries, b.acquires.Load())
			require.NoError(t, release(held))
			require.NoError(t, <-done)
			require.Equal(t, tries+1, b.acquires.Load())
		})
	}
}
