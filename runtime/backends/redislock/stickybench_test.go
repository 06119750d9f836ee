package redislock

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/lockgen/lockgen/internal/testserver"
)

// BenchmarkSticky is the work of one process that locks 64 keys again and again.
func BenchmarkSticky(b *testing.B) {
	const keys = 64
	l, p := newLocker(b, testserver.Redis(b)), sticky(2 * time.Second)
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
