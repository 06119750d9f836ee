package lock_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

// Calls of two processes that name overlapping keys in different orders don't deadlock, and each call
// gets all of its locks or none.
func TestAcquireAllInTwoProcesses(t *testing.T) {
	for name, open := range map[string]func() (driver.Backend, *scripted){
		"each":  func() (driver.Backend, *scripted) { b := newBounded(); return b, b.scripted },
		"batch": func() (driver.Backend, *scripted) { b := newBatchBackend(); return b, b.scripted },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				b, script := open()
				script.onAcquire = func(_ context.Context, _ *driver.Acquisition, do func() (driver.Lease, error)) (driver.Lease, error) {
					time.Sleep(10 * time.Microsecond)
					return do()
				}
				testCrossingCalls(t, b)
			})
		})
	}
}

func testCrossingCalls(t *testing.T, b driver.Backend) {
	lockers := []*lock.Locker{newLocker(t, b, nil), newLocker(t, b, nil)}
	const keys, workers, rounds = 12, 16, 125 // 2,000 calls
	var inside [keys]atomic.Bool
	var got, none atomic.Int64
	concurrently(workers, func(w int) {
		for round := range rounds {
			var p *lock.Policy
			if (w+round)%5 == 0 {
				p = &lock.Policy{Wait: 5 * time.Millisecond}
			}
			all := numbered(keys, p)
			reqs := slices.Concat(all[(w+round)%keys:], all[:(w+round)%keys])[:4+w%7]
			_, held, err := lockers[w%2].AcquireAll(t.Context(), reqs...)
			if err != nil {
				none.Add(1)
				assert.True(t, p != nil && errors.Is(err, lock.ErrNotAcquired), err)
				continue
			}
			got.Add(1)
			number := func(r lock.Request) int { n, _ := strconv.Atoi(r.Key[1:]); return n }
			for _, r := range reqs {
				assert.True(t, inside[number(r)].CompareAndSwap(false, true), "two hold "+r.Key)
			}
			time.Sleep(100 * time.Microsecond)
			for _, r := range reqs {
				inside[number(r)].Store(false)
			}
			assert.NoError(t, release(held))
		}
	})
	t.Logf("%d calls got all, %d none", got.Load(), none.Load())
	requireFree(t, lockers[0], numbered(keys, nil))
}
