package backendtest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockgen/lockgen/internal/lagmeter"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

// StormEnv is the environment variable that makes [Run] run a [Storm]. Its value is the
// length of the storm as for time.ParseDuration. To repeat a storm, add a comma and its seed.
const StormEnv = "LOCKGEN_STORM"

const (
	stormLockers = 4
	stormWorkers = 3 // for each Locker
	stormKeys    = 2
)

// Storm runs several Lockers, each like a process of its own, that lock a few keys at random
// for d, or longer if no lock was held by then. They wait, try, give up, hold a lock for longer
// than a lease, leave and die, while the Faults of the harness strike each of them. Storm fails
// if two were ever sure to hold one key, if a later hold has no higher token, if a call does not
// return, or if a key is not free when all have left.
//
// The same seed makes the same random choices, but their results differ each time.
func Storm(t *testing.T, h Harness, d time.Duration, seed uint64) {
	t.Helper()
	h.check(t)
	s := &suite{h: h.withDefaults(t), meter: lagmeter.Start()}
	defer s.meter.Stop()
	st := &storm{trial: newTrial(t, s), seed: seed, stop: make(chan struct{}), claims: map[string][]claim{}}
	st.drawKeys()
	begin := time.Now()
	var all sync.WaitGroup
	for i := range stormLockers {
		all.Go(func() { st.process(i) })
	}
	time.Sleep(d)
	if st.holds.Load() == 0 {
		t.Logf("nobody held a lock for %v", d)
	}
	for begin := time.Now(); st.holds.Load() == 0 && time.Since(begin) < st.timeout(); { // the machine is too busy
		time.Sleep(st.h.TTL / 10)
	}
	close(st.stop)
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(3 * st.timeout()):
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		t.Fatalf("seed %d: some calls have not returned %v after the storm; the goroutines:\n%s", seed, 3*st.timeout(), stacks)
	}
	st.verify()
	st.mustBeFree()
	// tools/record reads this attribute from the output of go test -json.
	t.Attr("storm", fmt.Sprintf(`{"Name":%q,"Seed":%d,"Seconds":%.0f,"Holds":%d,"Failures":%d,"Faults":%d,"Lockers":%d}`,
		h.Name, seed, time.Since(begin).Seconds(), st.holds.Load(), st.failures.Load(), st.faults.Load(), st.lockers.Load()))
	if st.holds.Load() == 0 {
		t.Error("nobody ever held a lock")
	}
}

// stormAsked returns what [StormEnv] asks for, if it is set.
func stormAsked(t testing.TB) (d time.Duration, seed uint64, asked bool) {
	text := os.Getenv(StormEnv)
	if text == "" {
		return 0, 0, false
	}
	length, number, repeated := strings.Cut(text, ",")
	d, err := time.ParseDuration(length)
	if seed = rand.Uint64N(1 << 32); repeated && err == nil {
		_, err = fmt.Sscan(number, &seed)
	}
	if err != nil {
		t.Fatalf("backendtest: %s=%q: %v; it must be a duration and perhaps a seed, like 1m or 1m,7", StormEnv, text, err)
	}
	return d, seed, true
}

type storm struct {
	*trial
	seed uint64
	keys []stormKey
	stop chan struct{}

	holds, failures, faults, lockers atomic.Int64

	mu     sync.Mutex
	claims map[string][]claim // by key
}

// claim is a period in which a holder was sure to hold a key: from the end of its acquire to
// its last successful lock.Check.
type claim struct {
	who         string
	policy      *lock.Policy
	token       uint64
	from, until time.Time
}

func (st *storm) ended() bool { return closed(st.stop) }

func (st *storm) random(of ...int) *rand.Rand {
	n := st.seed
	for _, i := range of {
		n = n*1_000_003 + uint64(i)
	}
	return rand.New(rand.NewPCG(st.seed, n))
}

// process runs one process after another. Each has a Locker, and leaves after a while.
func (st *storm) process(i int) {
	for life := 0; !st.ended(); life++ {
		rng := st.random(i, life)
		var b driver.Backend
		var faults Faults
		if st.h.OpenFaulty != nil {
			b, faults = st.h.OpenFaulty(st.T)
		} else {
			b = st.h.Open(st.T)
		}
		st.lockers.Add(1)
		l := lock.New(b, &lock.Options{HandOff: []time.Duration{0, 0, -1, 100 * time.Millisecond}[rng.IntN(4)]})
		end := make(chan struct{})
		var working, injecting sync.WaitGroup
		for w := range stormWorkers {
			working.Go(func() {
				one := &stormWorker{storm: st, locker: l, rng: st.random(i, life, w), name: fmt.Sprintf("Locker %d.%d", i, life)}
				for !st.ended() && !closed(end) {
					one.useOnce()
				}
			})
		}
		if faults != nil {
			injecting.Go(func() { st.injectFaults(faults, st.random(i, life, stormWorkers), end) })
		}
		st.sleep(between(rng, st.h.TTL, 6*st.h.TTL))
		close(end)
		injecting.Wait() // all faults are healed now
		if dies := faults != nil && rng.IntN(3) == 0; dies {
			faults.Silence() // for the engine the process has died, with its locks and its places in queues
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
			_ = l.Close(ctx) // its error says who still held a lock
			cancel()
			working.Wait()
			st.sleep(between(rng, 0, st.h.TTL))
			faults.Heal() // now the engine learns that its connections have ended
			continue
		}
		working.Wait()
		if err := l.Close(st.bounded()); err != nil {
			st.Errorf("Close: %v", err)
		}
	}
}

// injectFaults runs one fault after another, with pauses between them.
func (st *storm) injectFaults(f Faults, rng *rand.Rand, end <-chan struct{}) {
	defer f.Heal()
	for !st.ended() && !closed(end) {
		st.sleep(between(rng, 0, st.h.TTL))
		lasts := between(rng, st.h.TTL/50, st.h.TTL/2)
		switch rng.IntN(8) {
		case 0: // may last for longer than a lease
			f.Silence()
			lasts *= 4
		case 1, 2, 3: // healing it cuts connections
			f.Silence()
			lasts /= 10
		case 4:
			f.LoseReplies()
		default:
			f.Delay(between(rng, time.Millisecond, st.h.TTL/8))
		}
		st.faults.Add(1)
		st.sleep(lasts)
		f.Heal()
	}
}

// sleep waits for d or the end of the storm.
func (st *storm) sleep(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-st.stop:
	}
}

// stormWorker is one goroutine of a Locker.
type stormWorker struct {
	*storm
	locker *lock.Locker
	rng    *rand.Rand
	name   string
}

// useOnce is one use of a lock.
func (w *stormWorker) useOnce() {
	at, ttl := w.keys[w.rng.IntN(len(w.keys))], w.h.TTL
	kind := at.policies[w.rng.IntN(len(at.policies))]
	p, key := &kind, at.name
	p.Method, p.TTL = "Storm", ttl
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	section := between(w.rng, 0, 8*time.Millisecond)
	switch n := w.rng.IntN(100); {
	case n < 10:
		p.Try = p.Queue == 0
	case n < 50:
		p.Wait = between(w.rng, ttl/50, 2*ttl)
	case n < 90: // cancelled at a random moment: before the acquire, while it waits, inside, or during the release
		after := time.Duration(math.Exp(w.rng.Float64() * math.Log(float64(ttl)/float64(time.Microsecond)))) // in µs
		defer time.AfterFunc(after*time.Microsecond, cancel).Stop()
	case n == 90: // long enough for a renewal
		p.Wait, section = 2*ttl, between(w.rng, ttl/2, 2*ttl)
	case n == 91:
		p.Wait, p.NoRenew, section = 2*ttl, true, between(w.rng, 0, ttl*3/2)
	case n < 97:
		p.Wait, p.TTL = 2*ttl, ttl*2
	default: // waits for so long that it must get the lock
		p.Wait = 2 * w.timeout()
	}
	err := w.locker.Do(ctx, p, key, func(ctx context.Context) error {
		w.hold(ctx, p, key, section)
		return nil
	})
	switch {
	case err == nil, errors.Is(err, lock.ErrClosed):
	case errors.Is(err, lock.ErrNotAcquired), errors.Is(err, lock.ErrUnavailable), errors.Is(err, lock.ErrIndeterminate), errors.Is(err, lock.ErrLost):
		w.failures.Add(1)
		time.Sleep(between(w.rng, 0, 4*time.Millisecond)) // pause, since failures may follow each other at once
	default:
		w.Errorf("seed %d: %s: an error that Do must not return: %v", w.seed, w.name, err)
	}
}

// hold stays inside the lock for d, and notes for how long it was sure to hold it.
func (w *stormWorker) hold(ctx context.Context, p *lock.Policy, key string, d time.Duration) {
	w.holds.Add(1)
	now := time.Now()
	c := claim{who: w.name, policy: p, from: now, until: now}
	c.token, _ = lock.Token(ctx)
	sure := false // it stays false if the lease was over when the grant arrived
	for end := now.Add(d); ; {
		asked := time.Now()
		if lock.Check(ctx) != nil {
			break
		}
		c.until, sure = asked, true
		if w.ended() || !asked.Before(end) {
			break
		}
		time.Sleep(min(between(w.rng, 100*time.Microsecond, 3*time.Millisecond), time.Until(end)))
	}
	if !sure {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.claims[key] = append(w.claims[key], c)
}

// mustBeFree checks that a new Locker can take all locks, and that nothing is left at the engine.
func (st *storm) mustBeFree() {
	l := lock.New(st.h.Open(st.T), nil)
	for _, key := range st.keys {
		p := key.policies[len(key.policies)-1] // the one that excludes the most others
		p.TTL = st.long()
		if err := l.Do(st.bounded(), &p, key.name, func(context.Context) error { return nil }); err != nil {
			st.Errorf("seed %d: %s can't be acquired after all Lockers have ended: %v", st.seed, key.name, err)
		}
	}
	if err := l.Close(st.bounded()); err != nil {
		st.Errorf("Close: %v", err)
	}
	if st.h.Leftovers == nil {
		return
	}
	var left []string
	for end := time.Now().Add(st.timeout()); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		left = slices.DeleteFunc(st.h.Leftovers(st.T, st.h.Key(st.prefix)), st.mayStay)
		if len(left) == 0 {
			return
		}
	}
	st.Errorf("seed %d: left at the engine: %v", st.seed, left)
}

// mayStay reports whether name belongs to a lock other than a mutex at an engine without a clock.
func (st *storm) mayStay(name string) bool {
	if _, clockless := st.h.Cannot[Clock]; !clockless {
		return false
	}
	return slices.ContainsFunc(st.keys, func(k stormKey) bool {
		return k.policies[0] != (lock.Policy{}) && strings.HasPrefix(name, st.h.Key(k.name))
	})
}

func between(rng *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(rng.Int64N(int64(most-least)+1))
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
