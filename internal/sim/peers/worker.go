package peers

import (
	"context"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// worker is one goroutine of a process that runs one scene after another.
type worker struct {
	*process
	rng    *rand.Rand
	ctx    context.Context // ends when the process is killed
	cancel context.CancelFunc
}

// scene is one way to use a lock.
type scene struct {
	weight int
	play   func(*worker)
}

var scenes = []scene{
	{30, (*worker).wait},
	{12, (*worker).try},
	{10, (*worker).patient},
	{16, (*worker).cancelled},
	{3, (*worker).long}, // rare, so that others get a turn
	{2, (*worker).frozen},
}

func (w *worker) run() {
	for !isClosed(w.stop) {
		w.gate()
		w.draw().play(w)
	}
}

func (w *worker) draw() scene {
	sum := 0
	for _, s := range scenes {
		sum += s.weight
	}
	n := w.rng.IntN(sum)
	for _, s := range scenes {
		if n < s.weight {
			return s
		}
		n -= s.weight
	}
	panic("unreachable")
}

func (w *worker) key() string { return w.plan.Keys[w.rng.IntN(len(w.plan.Keys))] }

// between draws a time. If the plan has a grain, it draws a multiple of it, so that many events happen together.
func (w *worker) between(least, most time.Duration) time.Duration {
	d := least + time.Duration(w.rng.Int64N(int64(most-least)+1))
	if g := w.plan.Grain; g > 0 {
		d = (d + g - 1).Truncate(g)
	}
	return d
}

// brief draws the length of most sections.
func (w *worker) brief() time.Duration {
	switch w.rng.IntN(5) {
	case 0:
		return 0
	case 1:
		return w.between(8*time.Millisecond, 24*time.Millisecond)
	}
	return w.between(0, 8*time.Millisecond)
}

// wait waits for a bounded time.
func (w *worker) wait() {
	w.do(w.ctx, w.key(), w.between(20*time.Millisecond, 1200*time.Millisecond), w.brief())
}

func (w *worker) try() { w.do(w.ctx, w.key(), 0, w.brief()) }

// patient waits without a limit, and tries again after an error.
func (w *worker) patient() {
	key, d := w.key(), w.brief()
	for !w.do(w.ctx, key, -1, d) && !isClosed(w.stop) {
		w.gate()
	}
}

// cancelled gives up at a random moment: while it waits, sends, is inside, or releases.
func (w *worker) cancelled() {
	// From a microsecond to 150 ms, with a uniform logarithm.
	after := time.Duration(math.Exp(w.rng.Float64()*math.Log(150e3))) * time.Microsecond
	ctx, cancel := context.WithCancel(w.ctx)
	if w.rng.IntN(2) == 0 {
		ctx, cancel = context.WithTimeout(w.ctx, after)
	} else {
		defer time.AfterFunc(after, cancel).Stop()
	}
	defer cancel()
	w.do(ctx, w.key(), -1, 20*time.Millisecond)
}

// long works for about the length of the lease, which is renewed.
func (w *worker) long() {
	w.do(w.ctx, w.key(), time.Second, w.between(w.plan.TTL/2, 2*w.plan.TTL))
}

// frozen holds a lock, and its whole process is stopped for up to three leases between
// the check and the write.
func (w *worker) frozen() {
	h := w.acquire(w.ctx, w.key(), time.Second)
	if h == nil {
		return
	}
	defer w.release(h)
	if !w.check(h) {
		return
	}
	w.register.access(h, false)
	if w.check(h) {
		w.freeze(w.between(0, 3*w.plan.TTL))
		w.register.access(h, true)
	}
}

// do acquires key, runs a section of length d and releases the key. It reports whether key was acquired.
func (w *worker) do(ctx context.Context, key string, wait, d time.Duration) bool {
	h := w.acquire(ctx, key, wait)
	if h == nil {
		// If the server can't be reached, failures would follow without a pause.
		time.Sleep(w.between(0, 4*time.Millisecond))
		return false
	}
	defer w.release(h)
	w.section(h, d)
	return true
}

// call is one acquire.
type call struct {
	process    *process
	key        string
	begin, end time.Time                 // end is zero while it lasts
	limit      time.Time                 // when the wait is over; zero if it has no limit
	ended      atomic.Pointer[time.Time] // when its context ended
}

// due returns when the call must return, or false if it has no limit.
func (c *call) due() (time.Time, bool) {
	at := c.limit
	if t := c.ended.Load(); t != nil && (at.IsZero() || t.Before(at)) {
		at = *t
	}
	return at, !at.IsZero()
}

// acquire acquires key. It returns nil if that fails.
func (w *worker) acquire(ctx context.Context, key string, wait time.Duration) *hold {
	c := &call{process: w.process, key: key, begin: time.Now()}
	if wait > 0 {
		c.limit = c.begin.Add(wait)
	}
	stop := context.AfterFunc(ctx, func() {
		now := time.Now()
		c.ended.Store(&now)
	})
	defer stop()
	w.began(c)
	held, err := w.instance.Acquire(ctx, key, wait)
	w.gate()
	if err != nil {
		w.failed(c, err)
		return nil
	}
	return w.acquired(c, held)
}

// section works under the lock for d as a correct program does: it checks before each effect, and
// ends when it learns that the lock is lost.
func (w *worker) section(h *hold, d time.Duration) {
	end := time.Now().Add(d)
	if !w.check(h) {
		return
	}
	w.register.access(h, false)
	for {
		w.gate()
		if !w.check(h) {
			return
		}
		if w.rng.IntN(2) == 0 {
			if w.rng.IntN(4) == 0 { // between check and write only a token protects
				time.Sleep(w.between(0, 3*time.Millisecond))
				w.gate()
			}
			w.register.access(h, true)
		}
		if h.held.Context().Err() != nil || isClosed(w.stop) || !time.Now().Before(end) {
			return
		}
		time.Sleep(min(w.between(200*time.Microsecond, 4*time.Millisecond), time.Until(end)))
		w.gate()
	}
}

// checkLimit and releaseLimit are the time limits of a section's requests.
const (
	checkLimit   = 250 * time.Millisecond
	releaseLimit = time.Second
)

// check checks whether the lock is held, as a careful program does before each effect.
func (w *worker) check(h *hold) bool {
	ctx, cancel := context.WithTimeout(w.ctx, checkLimit)
	defer cancel()
	begin := time.Now()
	w.asks(h)
	err := h.held.Check(ctx)
	if w.peer.AsksServer() {
		w.returned("check", h.key, begin.Add(checkLimit))
		w.gate()
	}
	return w.checked(h, err)
}

func (w *worker) release(h *hold) {
	w.gate()
	before := w.releasing(h)
	ctx, cancel := context.WithTimeout(w.ctx, releaseLimit)
	defer cancel()
	begin := time.Now()
	err := h.held.Release(ctx)
	w.returned("release", h.key, begin.Add(releaseLimit))
	w.released(h, err, before)
}
