package lock_test

import (
	"strconv"
	"testing"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
)

// The benchmark shows the cost of several keys in memory, where no round trip is saved.
func BenchmarkAcquireAll(b *testing.B) {
	for _, n := range []int{2, 3, 8, 32, 1000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			l, ctx, reqs := benchLocker(b), b.Context(), make([]lock.Request, n)
			for i := range reqs {
				reqs[i] = lock.Request{Policy: &lock.Policy{TTL: time.Minute}, Key: "k" + strconv.Itoa(i)}
			}
			for b.Loop() {
				_, held, err := l.AcquireAll(ctx, reqs...)
				if err != nil {
					b.Fatal(err)
				}
				held.Release(&err)
			}
		})
	}
}
