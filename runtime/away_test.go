package lock_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

// waiting is an engine that grants nothing while it waits for something, such as a failover that is
// switching engines.
type waiting struct {
	*scripted
	over atomic.Bool
}

const untilOver = 2500 * time.Millisecond

func newWaiting() *waiting {
	w := &waiting{scripted: newScripted()}
	w.onAcquire = func(_ context.Context, _ *driver.Acquisition, do func() (driver.Lease, error)) (driver.Lease, error) {
		if !w.over.Load() {
			return nil, fmt.Errorf("%w: it waits: %w", lock.ErrUnavailable, &driver.HeldError{RetryAfter: untilOver})
		}
		return do()
	}
	return w
}

// While the engine grants nothing, no call reports that another holds the lock, even if the
// engine's answer was to another call. So no call with Skip succeeds.
func TestEngineThatWaits(t *testing.T) {
	policies := map[string]*lock.Policy{
		"try":       {Try: true},
		"skip":      {Try: true, Skip: true},
		"wait":      {Wait: time.Second},
		"skip wait": {Wait: time.Second, Skip: true},
		"context":   {},
	}
	for name, p := range policies {
		for _, waiter := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " ", waiter), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					w := newWaiting()
					l := newLocker(t, w, nil)
					if waiter {
						go func() {
							_, held := acquire(t, t.Context(), l, nil, "k")
							require.NoError(t, release(held))
						}()
						synctest.Wait()
					}
					ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
					defer cancel()
					err := l.Do(ctx, p, "k", func(context.Context) error { return nil })
					requireOnly(t, lock.ErrUnavailable, err)
					require.ErrorContains(t, err, "it waits")
					require.Equal(t, name == "context", errors.Is(err, context.DeadlineExceeded))
					var held *driver.HeldError
					require.ErrorAs(t, err, &held)
					require.Equal(t, untilOver, held.RetryAfter)
					w.over.Store(true)
					time.Sleep(2 * time.Second)
				})
			})
		}
	}
}

// A call that may wait continues to wait, also for several locks.
func TestWaitsForAnEngineThatWaits(t *testing.T) {
	for _, n := range []int{1, 5} {
		for _, waiter := range []bool{false, true} {
			bubble(t, func(t *testing.T) {
				w := newWaiting()
				l := newLocker(t, w, nil)
				keys := []string{"a", "b", "c", "d", "e"}[:n]
				if waiter {
					go func() {
						_, held := acquire(t, t.Context(), l, nil, keys[n-1])
						require.NoError(t, release(held))
					}()
					synctest.Wait()
				}
				go func() {
					time.Sleep(untilOver)
					w.over.Store(true)
				}()
				began := time.Now()
				_, held, err := l.AcquireAll(t.Context(), lock.Requests(&lock.Policy{Wait: time.Minute}, keys)...)
				require.NoError(t, err)
				require.Less(t, time.Since(began), untilOver+1100*time.Millisecond)
				require.NoError(t, release(held))
			})
		}
	}
}

// A Try behind a waiter reports the newest answer that the waiter got. So it no longer reports an
// outage once the engine answers again.
func TestEngineThatWaitsNoMore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWaiting()
		_, theirs := acquire(t, t.Context(), newLocker(t, w.Backend, nil), nil, "k")
		l := newLocker(t, w, nil)
		go func() {
			_, held := acquire(t, t.Context(), l, nil, "k")
			require.NoError(t, release(held))
		}()
		synctest.Wait()
		for _, kind := range []error{lock.ErrUnavailable, lock.ErrNotAcquired} {
			_, _, err := l.Acquire(t.Context(), &lock.Policy{Try: true}, "k")
			requireOnly(t, kind, err)
			_, _, err = l.Acquire(t.Context(), &lock.Policy{Wait: 10 * time.Millisecond}, "k")
			requireOnly(t, kind, err)
			w.over.Store(true)
			time.Sleep(time.Second)
		}
		require.NoError(t, release(theirs))
	})
}
