package backendtest

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
)

// crossingEnv is the environment variable that says how many calls for several keys to make.
// If it is not set, fewCrossing calls are made.
const crossingEnv = "LOCKGEN_CROSSING"

const fewCrossing = 60

// many returns the number in the environment variable env, or few if env is not set.
func many(t testing.TB, env string, few int64) int64 {
	t.Helper()
	text := os.Getenv(env)
	if text == "" {
		return few
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatalf("%s is not a number: %v", env, err)
	}
	return n
}

// crossing is the state of crossingCalls.
type crossing struct {
	*trial
	keys      []string
	inside    []atomic.Bool // by key
	calls     int64
	made      atomic.Int64
	got, none atomic.Int64
}

// crossingCalls has eight Lockers, each with connections of its own, lock overlapping sets of
// keys. Each call gets all of its keys or none, no key has two holders, and no two calls wait
// for each other.
func crossingCalls(c *trial) {
	const lockers, goroutines, keys = 8, 2, 10
	x := &crossing{trial: c, keys: c.newKeys(keys), inside: make([]atomic.Bool, keys), calls: many(c, crossingEnv, fewCrossing)}
	ctx, cancel := context.WithTimeout(c.Context(), c.timeout()+30*time.Second+time.Duration(x.calls)*50*time.Millisecond)
	defer cancel()
	var callers sync.WaitGroup
	began := time.Now()
	for range lockers {
		l := c.locker()
		for range goroutines {
			callers.Go(func() {
				for x.made.Add(1) <= x.calls && ctx.Err() == nil {
					x.call(ctx, l)
				}
			})
		}
	}
	callers.Wait()
	if ctx.Err() != nil {
		c.Error("the calls did not end in time")
	}
	c.Logf("%d calls got all keys, %d got none, in %v", x.got.Load(), x.none.Load(), time.Since(began).Round(time.Millisecond))
	last := c.locker()
	for _, key := range x.keys {
		c.mustAcquire(last, key, c.timeout(), "after all calls ended")
	}
}

// call takes two to five of the keys, in random order. One call in five waits for a short time only.
func (x *crossing) call(ctx context.Context, l *lock.Locker) {
	p := &lock.Policy{}
	if rand.IntN(5) == 0 {
		p.Wait = time.Duration(1+rand.IntN(20)) * time.Millisecond
	}
	some := rand.Perm(len(x.keys))[:2+rand.IntN(4)]
	reqs := make([]lock.Request, len(some))
	for i, k := range some {
		reqs[i] = lock.Request{Policy: p, Key: x.keys[k]}
	}
	_, held, err := l.AcquireAll(ctx, reqs...)
	if err != nil {
		if x.none.Add(1); p.Wait == 0 || !maybeTooShort(err) {
			x.Errorf("AcquireAll: %v", err)
		}
		return
	}
	x.got.Add(1)
	for _, k := range some {
		if !x.inside[k].CompareAndSwap(false, true) {
			x.Errorf("two hold %s", x.keys[k])
		}
	}
	time.Sleep(time.Millisecond)
	for _, k := range some {
		x.inside[k].Store(false)
	}
	x.leave(held)
}

// maybeTooShort reports whether err is a possible result of a call whose Wait was too short. The call
// waited for a holder or for the engine's answer, or it ended before it sent anything.
func maybeTooShort(err error) bool {
	return errors.Is(err, lock.ErrNotAcquired) || errors.Is(err, lock.ErrIndeterminate) || errors.Is(err, lock.ErrUnavailable)
}
