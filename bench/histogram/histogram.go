// Package histogram counts durations in buckets of less than 1 % width. Millions of
// durations fit into one histogram, which can be merged and sent to another process.
package histogram

import (
	"encoding/json"
	"math/bits"
	"time"
)

const (
	step    = 128 // buckets per power of two
	octaves = 34  // above 2*step ns: up to 73 minutes
	buckets = octaves*step + 2*step
)

// Histogram counts durations. The zero value is empty. A Histogram is not safe for
// concurrent use: each goroutine has one of its own, and they are merged at the end.
type Histogram struct {
	counts [buckets]uint32
	n      uint64
	max    time.Duration
}

// Add counts one duration. A negative one, which a clock that was set back causes, counts as 0.
func (h *Histogram) Add(d time.Duration) {
	h.counts[bucket(d)]++
	h.n++
	h.max = max(h.max, d)
}

// Merge adds the durations of o.
func (h *Histogram) Merge(o *Histogram) {
	for i, n := range o.counts {
		h.counts[i] += n
	}
	h.n += o.n
	h.max = max(h.max, o.max)
}

// N returns the number of durations.
func (h *Histogram) N() uint64 { return h.n }

// Max returns the longest duration, exactly.
func (h *Histogram) Max() time.Duration { return h.max }

// Quantile returns the duration that a share q of the durations does not exceed, or 0 if
// there are none.
func (h *Histogram) Quantile(q float64) time.Duration {
	if h.n == 0 {
		return 0
	}
	left := int64(q * float64(h.n-1))
	for i, n := range h.counts {
		if left -= int64(n); left < 0 {
			return min(middle(i), h.max)
		}
	}
	return h.max
}

// TimeWeighted returns the duration d such that durations of at most d make up a share q
// of the total time. If the durations are waits, it is the q-quantile of the wait that is
// running at a random instant. It returns 0 if there are no durations.
func (h *Histogram) TimeWeighted(q float64) time.Duration {
	total := 0.0
	for i, n := range h.counts {
		total += float64(n) * float64(middle(i))
	}
	left := q * total
	for i, n := range h.counts {
		if left -= float64(n) * float64(middle(i)); n > 0 && left <= 0 {
			return min(middle(i), h.max)
		}
	}
	return h.max
}

func bucket(d time.Duration) int {
	v := uint64(max(d, 0))
	shift := max(bits.Len64(v)-bits.Len64(2*step-1), 0)
	return min(shift*step+int(v>>shift), buckets-1)
}

// middle returns the middle of bucket i.
func middle(i int) time.Duration {
	if i < 2*step {
		return time.Duration(i)
	}
	shift := i/step - 1
	low := uint64(i-shift*step) << shift
	return time.Duration(low + 1<<shift/2)
}

// sparse is the JSON form of a Histogram: pairs of bucket and count.
type sparse struct {
	Counts [][2]uint32
	Max    time.Duration
}

// MarshalJSON implements json.Marshaler.
func (h *Histogram) MarshalJSON() ([]byte, error) {
	s := sparse{Max: h.max}
	for i, n := range h.counts {
		if n > 0 {
			s.Counts = append(s.Counts, [2]uint32{uint32(i), n})
		}
	}
	return json.Marshal(s)
}

// UnmarshalJSON implements json.Unmarshaler.
func (h *Histogram) UnmarshalJSON(text []byte) error {
	var s sparse
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	*h = Histogram{max: s.Max}
	for _, pair := range s.Counts {
		h.counts[min(pair[0], buckets-1)] += pair[1]
		h.n += uint64(pair[1])
	}
	return nil
}
