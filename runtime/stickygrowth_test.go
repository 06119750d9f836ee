package lock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

// A lease that Sticky made short has its own margin and its own retries until the engine has
// granted the policy's ttl. The margin and retries of that ttl may be longer than the whole lease.
func TestShortStickyLeaseIsExtended(t *testing.T) {
	short := &lock.Policy{TTL: 30 * time.Second, Sticky: 200 * time.Millisecond}
	for name, answers := range map[string]func(ctx context.Context, n int64, do func() error) error{
		"late": func(ctx context.Context, _ int64, do func() error) error {
			if err := wait(ctx, 5*time.Millisecond); err != nil {
				return err
			}
			return do()
		},
		"first refused": func(_ context.Context, n int64, do func() error) error {
			if n == 1 {
				return driver.ErrUnavailable
			}
			return do()
		},
		"first silent": func(ctx context.Context, n int64, do func() error) error {
			if n == 1 {
				return hang(ctx, do)
			}
			return do()
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				b := newScripted()
				b.onRenew = func(ctx context.Context, do func() error) error { return answers(ctx, b.renewals.Load(), do) }
				l := newLocker(t, b, nil)
				ctx, held := acquire(t, t.Context(), l, short, "k")
				for range 400 {
					time.Sleep(time.Millisecond)
					require.NoError(t, lock.Check(ctx))
				}
				require.Greater(t, time.Until(held.Deadline()), short.TTL/2)
				require.NoError(t, release(held))
			})
		})
	}
}

// Once the engine was asked to extend a lease to the ttl, the lease is not kept idle, even before
// the answer. If its process died, others would wait for the whole ttl.
func TestExtendedLeaseIsNotKept(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		b.onRenew = func(ctx context.Context, do func() error) error {
			err := do()
			return errors.Join(err, wait(ctx, 100*time.Millisecond))
		}
		l, other := newLocker(t, b, nil), newLocker(t, b.Backend, nil)
		_, held := acquire(t, t.Context(), l, sticky, "k")
		for b.renewals.Load() == 0 {
			time.Sleep(time.Millisecond)
		}
		require.NoError(t, release(held))
		require.Zero(t, l.Snapshot().Idle)
		cycle(t, other, &lock.Policy{Try: true}, "k")

		equal := &lock.Policy{TTL: stickyFor, Sticky: stickyFor} // a lease that is never extended
		_, held = acquire(t, t.Context(), l, equal, "k")
		time.Sleep(stickyFor)
		require.NoError(t, release(held))
		require.Equal(t, 1, l.Snapshot().Idle)
	})
}

// A lease is no longer renewed if its hold has lasted for Max. It is renewed again for the holds
// that follow.
func TestStickyLeaseAfterMax(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := newLocker(t, newScripted(), nil)
		p := &lock.Policy{TTL: 3 * time.Second, Sticky: 3 * time.Second, Max: 900 * time.Millisecond}
		_, held := acquire(t, t.Context(), l, p, "k")
		time.Sleep(1100 * time.Millisecond) // past the time at which the lease would have been renewed
		require.NoError(t, release(held))
		require.Equal(t, 1, l.Snapshot().Idle)
		time.Sleep(2 * time.Second)
		require.Equal(t, 1, l.Snapshot().Idle, "it is kept for as long as Sticky says")
		ctx, held := acquire(t, t.Context(), l, p, "k")
		time.Sleep(800 * time.Millisecond)
		require.NoError(t, lock.Check(ctx))
		require.NoError(t, release(held))
	})
}
