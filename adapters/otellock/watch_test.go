package otellock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
)

// watched returns a Locker that an Observer watches, and the sink of its metrics.
func watched(t *testing.T) (*sink, *lock.Locker, metric.Registration) {
	t.Helper()
	s := newSink()
	o := s.observer(t)
	l := lock.New(memlock.New(), &lock.Options{Observer: o})
	watching, err := o.Watch(l)
	require.NoError(t, err)
	return s, l, watching
}

func TestWatchCountsHoldsAndWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l, watching := watched(t)
		defer l.Close(context.Background())
		_, held, err := l.Acquire(t.Context(), buy, "shop:1")
		require.NoError(t, err)
		for range 3 {
			go l.Do(t.Context(), buy, "shop:1", func(context.Context) error { return nil })
		}
		synctest.Wait()
		require.Equal(t, map[string]float64{"": 1}, s.sums(t, "lockgen.holds"))
		require.Equal(t, map[string]float64{"": 3}, s.sums(t, "lockgen.waiters"))
		held.Release(nil)
		synctest.Wait()
		require.Empty(t, s.sums(t, "lockgen.waiters"))
		require.NoError(t, watching.Unregister())
	})
}

func TestWatchTellsTheOldest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l, _ := watched(t)
		defer l.Close(context.Background())
		for _, key := range []string{"shop:1", "shop:2"} {
			_, held, err := l.Acquire(t.Context(), buy, key)
			require.NoError(t, err)
			defer held.Release(nil)
			time.Sleep(time.Minute)
			go l.Do(t.Context(), buy, key, func(context.Context) error { return nil })
			synctest.Wait()
		}
		require.Equal(t, map[string]float64{"": 120}, s.sums(t, "lockgen.hold.oldest"))
		require.Equal(t, map[string]float64{"": 60}, s.sums(t, "lockgen.wait.oldest"))
	})
}

// TestLeadersAreNeverTheOldest checks that leaders and candidates do not count as the oldest, since
// they hold and wait as long as their processes live.
func TestLeadersAreNeverTheOldest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l, _ := watched(t)
		defer l.Close(context.Background())
		for range 2 {
			go l.Lead(t.Context(), &lock.Policy{Method: "Shop.Lead", Leader: true}, "shop", func(ctx context.Context) error {
				<-ctx.Done()
				return nil
			})
		}
		time.Sleep(time.Hour)
		require.Equal(t, map[string]float64{"": 1}, s.sums(t, "lockgen.holds"))
		require.Equal(t, map[string]float64{"": 1}, s.sums(t, "lockgen.waiters"))
		require.Empty(t, s.sums(t, "lockgen.hold.oldest"))
		require.Empty(t, s.sums(t, "lockgen.wait.oldest"))
	})
}
