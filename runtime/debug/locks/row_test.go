package locks

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestBuckets(t *testing.T) {
	for us := int64(0); us < 1<<37; us += 1 + us/13 {
		d := time.Duration(us) * time.Microsecond
		i := bucketOf(d)
		if i == buckets-1 {
			require.Greater(t, us, int64(1)<<36)
			continue
		}
		require.GreaterOrEqual(t, upperBound(i), d)
		require.LessOrEqual(t, upperBound(i), d+d/8)
		if i > 0 {
			require.Less(t, upperBound(i-1), d)
		}
	}
	require.Equal(t, buckets-1, bucketOf(1<<62))
	require.Equal(t, 0, bucketOf(-1))
}

func TestPercentile(t *testing.T) {
	var w window
	now := time.Now()
	_, ok := w.percentile(now, 99)
	require.False(t, ok)
	for i := range 1000 {
		w.add(now, time.Duration(i+1)*time.Microsecond)
	}
	w.add(now.Add(windowLength), time.Microsecond) // in the second of the two histograms
	p99, ok := w.percentile(now.Add(windowLength), 99)
	require.True(t, ok)
	require.InDelta(t, 990, p99.Microseconds(), 990/8)
	p99, _ = w.percentile(now.Add(2*windowLength+1), 99)
	require.Equal(t, time.Microsecond, p99, "the first histogram is too old")
}
