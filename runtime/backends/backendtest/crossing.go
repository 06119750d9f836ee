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

// crossingEnv is how many calls for several keys cross; a few unless it is set.
const crossingEnv = "LOCKGEN_CROSSING"

const fewCrossing = 60

// many returns the number that the environment has by this name, few unless it is set.
func many(t testing.TB, env string, few int64) int64 {
	t.Helper()
	text := os.Getenv(env)
	if text == "" {
		return few
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatalf("%s is no number: %v", env, err)
	}
	return n
}

// crossing is Lockers whose calls for several of the same keys cross.
type crossing struct {
	*trial
	keys      []string
	inside    []atomic.Bool // by key
	calls     int64
	made      atomic.Int64
	got, none atomic.Int64
}

// crossingCalls has calls of eight Lockers cross, each with connections of its own: each
// call has all of its keys or none, nobody is inside with another, and no two wait for each
// other.
func crossingCalls(c *trial) {
	const lockers, goroutines, keys = 8, 2, 10
	x := &crossing{trial: c, keys: c.newKeys(keys), inside: make([]atomic.Bool, keys), calls: many(c, crossingEnv, fewCrossing)}
	ctx, cancel := context.WithTimeout(c.Context(), c.soon()+30*time.Second+time.Duration(x.calls)*50*time.Millisecond)
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
		c.Error("the calls did not come to an end")
	}
	c.Logf("%d calls got all, %d none, in %v", x.got.Load(), x.none.Load(), time.Since(began).Round(time.Millisecond))
	last := c.locker()
	for _, key := range x.keys {
		c.passesBy(last, key, c.soon(), "all calls are over")
	}
}

// call takes two to five of the keys, named in any order. One in five does not wait for long.
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
		if x.none.Add(1); p.Wait == 0 || !inVain(err) {
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

// inVain reports whether err may end a call whose wait is over: it waited for a holder, or
// for the engine's answer, or nothing was sent before.
func inVain(err error) bool {
	return errors.Is(err, lock.ErrNotAcquired) || errors.Is(err, lock.ErrIndeterminate) || errors.Is(err, lock.ErrUnavailable)
}
