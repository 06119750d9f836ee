package nightly_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/example/nightly"
	"github.com/lockgen/lockgen/runtime/locktest"
)

// Ten processes whose clocks are up to two minutes apart close the books of 30 days: each
// day once, though one run in four fails.
func TestTenProcessesCloseEachDayOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine, midnight := locktest.New(t), time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
		var runs atomic.Int32
		var mu sync.Mutex
		closed := map[time.Time]int{}
		closeDay := func(_ context.Context, day time.Time) error {
			time.Sleep(10 * time.Second)
			if runs.Add(1)%4 == 0 {
				return errors.New("the database was away")
			}
			mu.Lock()
			defer mu.Unlock()
			closed[day]++
			return nil
		}
		start := time.Now()
		var all sync.WaitGroup
		for i := range 10 {
			books := nightly.NewBooksWithLock(&nightly.Books{Close: closeDay}, engine.Locker(nil))
			late := time.Duration(i) * 13 * time.Second // by its own clock it is on time
			all.Go(func() {
				for night := range 30 {
					after := time.Duration(night)*24*time.Hour + late
					time.Sleep(time.Until(start.Add(after)))
					_ = books.CloseDay(t.Context(), midnight.AddDate(0, 0, night)) // the next process tries again
				}
			})
		}
		all.Wait()
		require.Len(t, closed, 30)
		for day, n := range closed {
			require.Equal(t, 1, n, "%v", day)
		}
		require.Greater(t, int(runs.Load()), 30)
	})
}

// One process reports at a time, and the next one goes on when it resigns or dies.
func TestReportsHaveOneLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := locktest.New(t)
		var leader atomic.Pointer[context.Context]
		var reports atomic.Int32
		report := func(ctx context.Context) error {
			if last := leader.Swap(&ctx); last != nil && *last != ctx && (*last).Err() == nil {
				t.Error("two lead")
			}
			select {
			case <-time.After(time.Minute):
				reports.Add(1)
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for range 3 {
			books := nightly.NewBooksWithLock(&nightly.Books{Report: report}, engine.Locker(nil))
			all.Go(func() {
				if err := books.Reports(ctx); !errors.Is(err, context.Canceled) {
					t.Errorf("Reports returned %v; it goes on until its context ends", err)
				}
			})
		}
		for range 3 {
			time.Sleep(time.Hour + 30*time.Minute)   // each leader writes two reports
			engine.Expire(nightly.BooksReportsKey()) // as if the leader were cut off
		}
		cancel()
		all.Wait()
		require.GreaterOrEqual(t, int(reports.Load()), 6)
	})
}
