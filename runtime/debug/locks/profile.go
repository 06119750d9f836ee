package locks

import (
	"compress/gzip"
	"context"
	"math/rand/v2"
	"net/http"
	"net/url"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
)

const (
	// maxDepth is how many frames of a stack a profile has.
	maxDepth = 32
	// maxSamples bounds the memory of a profile. Further samples have no stack.
	maxSamples = 10_000
	// maxSeconds bounds how long one request for a profile may last.
	maxSeconds = 300
)

// profile adds up how long calls waited, or held locks, by label and stack.
type profile struct {
	name string // "lockgen_wait"

	mu      sync.Mutex
	samples map[sampleKey]sample
}

type sampleKey struct {
	label label
	stack [maxDepth]uintptr // of the call; zeros after its last frame
}

type sample struct{ count, nanoseconds int64 }

// sample adds e to its profile, with a probability of one in fraction.
func (m *Monitor) sample(e lock.Event) {
	if m.fraction <= 0 || rand.IntN(m.fraction) != 0 {
		return
	}
	switch e.Kind {
	case lock.Acquired, lock.HandedOff, lock.Rejected:
		m.wait.add(e, int64(m.fraction))
	case lock.Released, lock.Lost:
		m.hold.add(e, int64(m.fraction))
	}
}

// add adds e, which stands for fraction events.
func (p *profile) add(e lock.Event, fraction int64) {
	key := sampleKey{label: label{e.Policy.Method, e.Policy.Pattern, e.Policy.Backend}}
	if e.Kind != lock.Lost { // a loss is reported by the watchdog, whose stack is of no use
		runtime.Callers(4, key.stack[:]) // from the caller of Monitor.Observe
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, known := p.samples[key]; !known && len(p.samples) >= maxSamples {
		key = sampleKey{label: label{method: "(all others)"}}
	}
	s := p.samples[key]
	s.count += fraction
	s.nanoseconds += fraction * int64(e.Duration)
	p.samples[key] = s
}

// copied returns the samples of p as they are now.
func (p *profile) copied() map[sampleKey]sample {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make(map[sampleKey]sample, len(p.samples))
	for key, s := range p.samples {
		all[key] = s
	}
	return all
}

// serveProfile writes a profile for go tool pprof: since the Monitor was made, or over the next
// "seconds".
func (m *Monitor) serveProfile(w http.ResponseWriter, r *http.Request, query url.Values) {
	p := map[string]*profile{"wait": &m.wait, "hold": &m.hold}[query.Get("profile")]
	switch {
	case p == nil:
		http.Error(w, "there is no such profile: there are profile=wait and profile=hold", http.StatusNotFound)
		return
	case m.fraction <= 0:
		http.Error(w, "profiles are off: set locks.Options.ProfileFraction", http.StatusNotFound)
		return
	}
	began, samples := m.began, p.copied()
	if given := query.Get("seconds"); given != "" {
		seconds, err := strconv.Atoi(given)
		if err != nil || seconds < 1 || seconds > maxSeconds {
			http.Error(w, "seconds is 1 to "+strconv.Itoa(maxSeconds), http.StatusBadRequest)
			return
		}
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Duration(seconds)*time.Second + 10*time.Second))
		if !sleep(r.Context(), time.Duration(seconds)*time.Second) {
			return
		}
		before := samples
		began, samples = time.Now().Add(-time.Duration(seconds)*time.Second), p.copied()
		for key, s := range before {
			if s.count == samples[key].count {
				delete(samples, key)
				continue
			}
			samples[key] = sample{samples[key].count - s.count, samples[key].nanoseconds - s.nanoseconds}
		}
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Disposition", `attachment; filename="lockgen-`+query.Get("profile")+`.pb.gz"`)
	zipped := gzip.NewWriter(w)
	_, _ = zipped.Write(encode(p.name, samples, began, time.Since(began), int64(m.fraction)))
	_ = zipped.Close() // an error means that the client has gone
}

// sleep waits for d. It reports false if ctx ended before.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// ours is the prefix of the names of functions of package lock.
const ours = "github.com/lockgen/lockgen/runtime."

// frames returns the frames to show to a user. Of the functions of package lock it has only the
// one that the user's code called.
func (k *sampleKey) frames() (all []runtime.Frame) {
	n := 0
	for n < len(k.stack) && k.stack[n] != 0 {
		n++
	}
	if n == 0 {
		return nil
	}
	entered := false
	for walk, more := runtime.CallersFrames(k.stack[:n]), true; more; {
		var f runtime.Frame
		f, more = walk.Next()
		inside := strings.HasPrefix(f.Function, ours)
		if inside && (!entered || len(all) == 1) {
			entered, all = true, all[:0]
		}
		all = append(all, f)
	}
	return all
}
