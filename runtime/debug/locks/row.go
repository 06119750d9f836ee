package locks

import (
	"math/bits"
	"sync"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
)

// label identifies the counts of one method.
type label struct{ method, pattern, backend string }

// row has the counts of one label.
type row struct {
	label label

	mu         sync.Mutex
	counts     counts
	wait, hold window
}

// counts counts events since the Monitor was made.
type counts struct {
	Acquired, Reentered, Rejected, Lost, Unconfirmed uint64
}

// count adds e. The wait of a refused call counts too.
func (r *row) count(e lock.Event) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	switch e.Kind {
	case lock.Acquired, lock.HandedOff:
		r.counts.Acquired++
		r.wait.add(now, e.Duration)
	case lock.Reentered:
		r.counts.Reentered++
	case lock.Rejected:
		r.counts.Rejected++
		r.wait.add(now, e.Duration)
	case lock.Lost:
		r.counts.Lost++
		r.hold.add(now, e.Duration)
	case lock.Released:
		if e.Err != nil {
			r.counts.Unconfirmed++
		}
		r.hold.add(now, e.Duration)
	}
}

// windowLength is how long a histogram is filled before the next one begins.
const windowLength = 30 * time.Second

// window is a histogram of the last windowLength, or up to twice as long.
type window struct {
	began        time.Time
	this, before *histogram
}

func (w *window) add(now time.Time, d time.Duration) {
	w.turn(now)
	w.this.add(d)
}

// turn drops what is too old.
func (w *window) turn(now time.Time) {
	switch age := now.Sub(w.began); {
	case w.this == nil || age >= 2*windowLength:
		w.this, w.before, w.began = &histogram{}, nil, now
	case age >= windowLength:
		w.this, w.before, w.began = &histogram{}, w.this, now
	}
}

// percentile returns an upper bound of the shortest percent of the durations, or false if there
// are none.
func (w *window) percentile(now time.Time, percent int) (time.Duration, bool) {
	w.turn(now)
	total := w.this.total
	if w.before != nil {
		total += w.before.total
	}
	if total == 0 {
		return 0, false
	}
	rank := (total*uint64(percent) + 99) / 100
	for i := range w.this.buckets {
		n := uint64(w.this.buckets[i])
		if w.before != nil {
			n += uint64(w.before.buckets[i])
		}
		if n >= rank {
			return upperBound(i), true
		}
		rank -= n
	}
	return upperBound(len(w.this.buckets) - 1), true
}

// histogram counts durations in buckets whose bounds are an eighth apart.
type histogram struct {
	total   uint64
	buckets [buckets]uint32
}

// buckets reach to 2^36 µs, which is 19 hours. A longer duration counts in the last one.
const buckets = 8*33 + 16

func (h *histogram) add(d time.Duration) {
	h.total++
	h.buckets[bucketOf(d)]++
}

func bucketOf(d time.Duration) int {
	us := uint64(max(d, 0).Microseconds())
	exp := max(bits.Len64(us)-4, 0)
	return min(8*exp+int(us>>exp), buckets-1)
}

// upperBound returns the longest duration that bucket i counts.
func upperBound(i int) time.Duration {
	exp := max(i/8-1, 0)
	return time.Duration((uint64(i-8*exp)+1)<<exp-1) * time.Microsecond
}
