package redislock

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
)

func sticky(d time.Duration) *lock.Policy { return &lock.Policy{Sticky: d} }

// BenchmarkSticky measures one process that locks 64 keys again and again.
func BenchmarkSticky(b *testing.B) {
	const keys = 64
	l, p := newLocker(b, testserver.Redis(b)), sticky(2*time.Second)
	nothing := func(context.Context) error { return nil }
	var work sync.WaitGroup
	for i := range keys {
		key := newKey(b) + strconv.Itoa(i)
		work.Go(func() {
			for range b.N / keys {
				if err := l.Do(context.Background(), p, key, nothing); err != nil {
					b.Error(err)
				}
			}
		})
	}
	work.Wait()
	b.ReportMetric(float64(b.N/keys*keys)/b.Elapsed().Seconds(), "cycles/s")
}

// BenchmarkStickyRecall measures how long a process needs to get a lock that another process keeps
// idle.
func BenchmarkStickyRecall(b *testing.B) {
	addr, key, p := testserver.Redis(b), newKey(b), sticky(2*time.Second)
	all := []*lock.Locker{newLocker(b, addr), newLocker(b, addr)}
	took := make([]time.Duration, 0, b.N)
	for i := range b.N {
		begin := time.Now()
		_, held := acquire(b, all[i%2], p, key)
		took = append(took, time.Since(begin))
		mustRelease(b, held)
		time.Sleep(time.Millisecond)
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
}
