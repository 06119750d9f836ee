package lock_test

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
)

func benchLocker(b *testing.B) *lock.Locker {
	l := lock.New(memlock.New(), nil)
	b.Cleanup(func() { l.Close(context.Background()) })
	b.ReportAllocs()
	return l
}

func BenchmarkUncontended(b *testing.B) {
	l, p, ctx := benchLocker(b), &lock.Policy{TTL: time.Minute}, b.Context()
	for b.Loop() {
		_, held, err := l.Acquire(ctx, p, "k")
		if err != nil {
			b.Fatal(err)
		}
		held.Release(&err)
	}
}

// Each goroutine has its own key, so the benchmark shows what more cores gain.
func BenchmarkUncontendedParallel(b *testing.B) {
	l, p, ctx := benchLocker(b), &lock.Policy{TTL: time.Minute}, b.Context()
	var n atomic.Int64
	b.RunParallel(func(pb *testing.PB) {
		key := "k" + strconv.FormatInt(n.Add(1), 10)
		for pb.Next() {
			_, held, err := l.Acquire(ctx, p, key)
			if err != nil {
				b.Error(err)
				return
			}
			held.Release(&err)
		}
	})
}

// The program holds other locks meanwhile.
func BenchmarkUncontendedBesideHolds(b *testing.B) {
	l, p, ctx := benchLocker(b), &lock.Policy{TTL: time.Minute}, b.Context()
	for i := range 10_000 {
		_, held, err := l.Acquire(ctx, p, "held"+strconv.Itoa(i))
		if err != nil {
			b.Fatal(err)
		}
		defer held.Release(nil)
	}
	for b.Loop() {
		_, held, err := l.Acquire(ctx, p, "k")
		if err != nil {
			b.Fatal(err)
		}
		held.Release(&err)
	}
}

func BenchmarkReentry(b *testing.B) {
	l, p := benchLocker(b), &lock.Policy{TTL: time.Minute, Reentrant: true}
	ctx, outer, err := l.Acquire(b.Context(), p, "k")
	if err != nil {
		b.Fatal(err)
	}
	defer outer.Release(nil)
	for b.Loop() {
		_, held, err := l.Acquire(ctx, p, "k")
		if err != nil {
			b.Fatal(err)
		}
		held.Release(&err)
	}
}

// The re-entry's context is derived from the method's, as in an errgroup.
func BenchmarkReentryUnderADerivedContext(b *testing.B) {
	l, p := benchLocker(b), &lock.Policy{TTL: time.Minute, Reentrant: true}
	ctx, outer, err := l.Acquire(b.Context(), p, "k")
	if err != nil {
		b.Fatal(err)
	}
	defer outer.Release(nil)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for b.Loop() {
		_, held, err := l.Acquire(ctx, p, "k")
		if err != nil {
			b.Fatal(err)
		}
		held.Release(&err)
	}
}

func BenchmarkCheck(b *testing.B) {
	ctx, held, err := benchLocker(b).Acquire(b.Context(), nil, "k")
	if err != nil {
		b.Fatal(err)
	}
	defer held.Release(nil)
	for b.Loop() {
		if err := lock.Check(ctx); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkHotKey64(b *testing.B) {
	l, p, ctx := benchLocker(b), &lock.Policy{TTL: time.Minute}, b.Context()
	var wg sync.WaitGroup
	var done atomic.Int64
	b.ResetTimer()
	for range 64 {
		wg.Go(func() {
			for done.Add(1) <= int64(b.N) {
				_, held, err := l.Acquire(ctx, p, "k")
				if err != nil {
					b.Error(err)
					return
				}
				held.Release(&err)
			}
		})
	}
	wg.Wait()
}

// The cost of a hand-off that does nothing else: 64 goroutines pass a token round, and each reads
// the clock when it gets the token.
func BenchmarkFloorHandOff64(b *testing.B) {
	var ring [64]chan int
	for i := range ring {
		ring[i] = make(chan int, 1)
	}
	var wg sync.WaitGroup
	b.ResetTimer()
	for i := range ring {
		wg.Go(func() {
			next := ring[(i+1)%len(ring)]
			for n := range ring[i] {
				sinkTime = time.Now()
				if n < b.N+len(ring)-1 {
					next <- n + 1
				}
				if n >= b.N {
					return
				}
			}
		})
	}
	ring[0] <- 0
	wg.Wait()
}

var sinkTime time.Time
