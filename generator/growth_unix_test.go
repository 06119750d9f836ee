//go:build unix

package generator

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The time for a package grows linearly with its types. It is the processor time of this process:
// on a busy machine the clock runs while a long run waits for the processor, and a short run need
// not wait. The best of three tries counts, because the garbage collector runs in some of them.
// Quadratic or cubic code takes 64 or 512 times as long in each.
func TestGrowth(t *testing.T) {
	const few, times, limit = 80, 8, 24
	took := func(n int) time.Duration {
		run := generateShape(t, growing[0].source(n))
		start := processorTime(t)
		run()
		return processorTime(t) - start
	}
	best := 0.0
	for range 3 {
		one, many := took(few), took(few*times)
		if ratio := float64(many) / float64(one); best == 0 || ratio < best {
			best = ratio
		}
		t.Logf("%d types take %v, %d take %v", few, one, few*times, many)
		if best < limit {
			return
		}
	}
	t.Fatalf("%d times as many types take %.0f times as long", times, best)
}

func processorTime(t *testing.T) time.Duration {
	var used syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
