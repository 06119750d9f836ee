package histogram

import (
	"encoding/json"
	"math"
	"testing"
	"time"
)

func TestEveryDurationIsWithinOnePercentOfItsBucket(t *testing.T) {
	for d := time.Duration(1); d < time.Hour; d += 1 + d/97 {
		got := middle(bucket(d))
		if off := math.Abs(float64(got-d)) / float64(d); off > 0.01 {
			t.Fatalf("middle(bucket(%v)) = %v, %.1f %% off", d, got, 100*off)
		}
	}
	for _, d := range []time.Duration{-time.Second, 0, 1<<63 - 1} {
		if b := bucket(d); b < 0 || b >= buckets {
			t.Errorf("%d goes to bucket %d of %d", d, b, buckets)
		}
	}
}

func TestQuantilesSurviveMergeAndJSON(t *testing.T) {
	var odd, even, all Histogram
	for i := range 1000 {
		h := &even
		if i%2 == 1 {
			h = &odd
		}
		h.Add(time.Duration(i+1) * time.Microsecond)
	}
	for _, h := range []*Histogram{&odd, &even} {
		text, err := json.Marshal(h)
		if err != nil {
			t.Fatal(err)
		}
		var read Histogram
		if err := json.Unmarshal(text, &read); err != nil {
			t.Fatal(err)
		}
		all.Merge(&read)
	}
	if all.N() != 1000 || all.Max() != time.Millisecond {
		t.Errorf("merged: %d durations up to %v", all.N(), all.Max())
	}
	for q, want := range map[float64]time.Duration{0: 1, 0.5: 500, 0.99: 990, 1: 1000} {
		got := all.Quantile(q)
		if off := math.Abs(float64(got)/float64(want*time.Microsecond) - 1); off > 0.01 {
			t.Errorf("Quantile(%v) = %v, want %d µs", q, got, want)
		}
	}
}

func TestAnEmptyHistogramHasNoQuantile(t *testing.T) {
	var h Histogram
	if got := h.Quantile(0.5); got != 0 {
		t.Errorf("got %v", got)
	}
}

func TestTimeWeighted(t *testing.T) {
	var h Histogram
	if got := h.TimeWeighted(0.5); got != 0 {
		t.Errorf("of nothing: %v", got)
	}
	// 1,000 waits of 1 ms are a third of the time, two waits of 1 s the other two thirds.
	for range 1000 {
		h.Add(time.Millisecond)
	}
	h.Add(time.Second)
	h.Add(time.Second)
	for q, want := range map[float64]time.Duration{0.3: time.Millisecond, 0.5: time.Second, 1: time.Second} {
		if got := h.TimeWeighted(q); got < want*99/100 || got > want*101/100 {
			t.Errorf("%v: %v, want %v", q, got, want)
		}
	}
}
