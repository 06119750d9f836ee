package lock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
)

// Policy.Queue counts the calls that wait. A call that is releasing does not count, nor does one
// that can get a permit at once. Each call that runs a tick counts, and each reader whose lease
// can't be shared.
func TestQueueCountsWhoWaits(t *testing.T) {
	busyBehindWaiter := func(t *testing.T, l *lock.Locker, p *lock.Policy, ask func(*lock.Policy) error) {
		waits := make(chan error, 1)
		go func() { waits <- ask(p) }()
		synctest.Wait()
		require.ErrorIs(t, ask(p), lock.ErrBusy)
		time.Sleep(time.Second)
		require.NoError(t, <-waits)
	}
	t.Run("fair, while another is released", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			b := newScripted()
			b.onRelease = func(_ context.Context, _ uint64, do func() error) error {
				time.Sleep(100 * time.Millisecond)
				return do()
			}
			l, p := newLocker(t, b, nil), &lock.Policy{Fair: true, Queue: 1}
			_, held := acquire(t, t.Context(), l, p, "k")
			go func() { _ = release(held) }()
			time.Sleep(50 * time.Millisecond)
			_, next := acquire(t, t.Context(), l, p, "k")
			require.NoError(t, release(next))
		})
	})
	t.Run("once", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			l, p := newLocker(t, memlock.New(), nil), &lock.Policy{Once: true, Queue: 1}
			_, held, err := l.AcquireOnce(t.Context(), p, "k", "1")
			require.NoError(t, err)
			time.AfterFunc(500*time.Millisecond, func() { _ = release(held) })
			busyBehindWaiter(t, l, p, func(p *lock.Policy) error {
				_, held, err := l.AcquireOnce(t.Context(), p, "k", "2")
				held.Release(nil)
				return err
			})
		})
	})
	for name, p := range map[string]*lock.Policy{"read": {Read: true, NoRenew: true, Queue: 1}, "permits": {Permits: 3, Queue: 1}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				engine := memlock.New()
				other, l := newLocker(t, engine, nil), newLocker(t, engine, nil)
				_, held := acquire(t, t.Context(), other, &lock.Policy{Write: p.Read, Permits: p.Permits, Weight: p.Permits}, "k")
				time.AfterFunc(500*time.Millisecond, func() { _ = release(held) })
				busyBehindWaiter(t, l, p, func(p *lock.Policy) error {
					return l.Do(t.Context(), p, "k", func(context.Context) error { return nil })
				})
			})
		})
	}
	t.Run("permits that are free", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			l, p := newLocker(t, memlock.New(), nil), &lock.Policy{Permits: 3, Queue: 1}
			concurrently(3, func(int) {
				require.NoError(t, l.Do(t.Context(), p, "k", func(context.Context) error { time.Sleep(time.Second); return nil }))
			})
		})
	})
}
