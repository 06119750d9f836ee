package lock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
)

// nestKeys takes the keys, each nested in the one before, from the Lockers in turn. It sleeps after
// each, so that all calls of a ring hold their first key before any of them asks for the second.
func nestKeys(t *testing.T, lockers []*lock.Locker, p *lock.Policy, keys ...string) error {
	nested := func(ctx context.Context, i int) (context.Context, func(), error) {
		ctx, held, err := lockers[i%len(lockers)].Acquire(ctx, p, keys[i])
		return ctx, func() { held.Release(nil) }, err
	}
	ctx := t.Context()
	for i := range keys {
		next, done, err := nested(ctx, i)
		if err != nil {
			return err
		}
		defer done()
		ctx = next
		time.Sleep(time.Millisecond)
	}
	return nil
}

// ring runs n calls that form a cycle: each holds a key and waits for the key of the next. It
// returns the errors of those that failed.
func ring(t *testing.T, n int, lockers []*lock.Locker, p *lock.Policy) (victims []error) {
	errs := make([]error, n)
	concurrently(n, func(i int) {
		errs[i] = nestKeys(t, lockers, p, fmt.Sprint("k", i), fmt.Sprint("k", (i+1)%n))
	})
	for _, err := range errs {
		if err != nil {
			victims = append(victims, err)
		}
	}
	return victims
}

// A deadlock is resolved within a second, by exactly one victim.
func TestDeadlockOfNestedLocks(t *testing.T) {
	times := 1_000
	if testing.Short() {
		times = 100
	}
	bubble(t, func(t *testing.T) {
		l := newLocker(t, memlock.New(), &lock.Options{HandOff: -1})
		p := &lock.Policy{Method: "Shop.Move"}
		for i := range times {
			began := time.Now()
			victims := ring(t, 2+i%3, []*lock.Locker{l}, p)
			require.LessOrEqual(t, time.Since(began), time.Second)
			require.Len(t, victims, 1)
			require.ErrorIs(t, victims[0], lock.ErrDeadlock)
			require.NotErrorIs(t, victims[0], context.Canceled)
		}
	})
}

// The same with two Lockers of one Backend, whose calls wait at the engine, and with other kinds of
// locks.
func TestDeadlockOfLockersAndKinds(t *testing.T) {
	for name, p := range map[string]*lock.Policy{"mutex": {}, "write": {Write: true}, "fair": {Fair: true}, "polled": {TTL: time.Minute}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				b := memlock.New()
				lockers := []*lock.Locker{newLocker(t, b, nil), newLocker(t, b, nil)}
				began := time.Now()
				victims := ring(t, 2, lockers, p)
				require.LessOrEqual(t, time.Since(began), time.Second)
				require.Len(t, victims, 1)
				require.ErrorIs(t, victims[0], lock.ErrDeadlock)
			})
		})
	}
}

func TestDeadlockInWords(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := newLocker(t, memlock.New(), &lock.Options{Prefix: "test:"})
		first := make(chan error, 1)
		go func() {
			first <- nestKeys(t, []*lock.Locker{l}, &lock.Policy{Method: "Shop.Buy"}, "voucher:1", "stock:1")
		}()
		time.Sleep(100 * time.Microsecond) // so that Shop.Buy, which waits first, looks for a cycle first
		require.NoError(t, nestKeys(t, []*lock.Locker{l}, &lock.Policy{Method: "Stock.Count"}, "stock:1", "voucher:1"))
		require.EqualError(t, <-first, "lock: acquire stock:1 (Shop.Buy): deadlock: calls of this process wait for each other: this one holds voucher:1 "+
			"and waits for stock:1, which Stock.Count holds; that holds stock:1 and waits for voucher:1, which this one holds; "+
			"take the locks in one order, or together by AcquireAll")
	})
}

// A call that takes several locks, and waits for one of them, holds the locks before it.
func TestDeadlockWithSeveralLocks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := newLocker(t, memlock.New(), nil)
		errs := make([]error, 2)
		concurrently(2, func(i int) {
			if i == 0 {
				errs[0] = nestKeys(t, []*lock.Locker{l}, nil, "b", "a")
				return
			}
			time.Sleep(100 * time.Microsecond)
			_, held, err := l.AcquireAll(t.Context(), lock.Request{Key: "a"}, lock.Request{Key: "b"})
			if errs[1] = err; err == nil {
				held.Release(nil)
			}
		})
		require.True(t, errors.Is(errs[0], lock.ErrDeadlock) != errors.Is(errs[1], lock.ErrDeadlock), errs)
	})
}

// Waits that end by themselves have no victim, however long they last.
func TestNoFalseVictim(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := newLocker(t, memlock.New(), nil)
		read, permits := &lock.Policy{Read: true}, &lock.Policy{Permits: 2}
		for name, run := range map[string]func() error{
			"a chain whose last call is slow": func() error {
				_, c := acquire(t, t.Context(), l, nil, "c")
				time.AfterFunc(time.Minute, func() { c.Release(nil) })
				go nestKeys(t, []*lock.Locker{l}, nil, "b", "c")
				time.Sleep(100 * time.Microsecond)
				return nestKeys(t, []*lock.Locker{l}, nil, "a", "b")
			},
			"another permit may come back": func() error {
				_, other := acquire(t, t.Context(), l, permits, "p")
				time.AfterFunc(time.Minute, func() { other.Release(nil) })
				go func() { // holds the other permit, and waits for m
					ctx, held, _ := l.Acquire(t.Context(), permits, "p")
					defer held.Release(nil)
					time.Sleep(time.Millisecond)
					_, m, err := l.Acquire(ctx, nil, "m")
					if err == nil {
						m.Release(nil)
					}
				}()
				ctx, m := acquire(t, t.Context(), l, nil, "m")
				defer m.Release(nil)
				time.Sleep(time.Millisecond)
				_, p, err := l.Acquire(ctx, permits, "p")
				p.Release(nil)
				return err
			},
			"readers share": func() error {
				ctx, r := acquire(t, t.Context(), l, read, "r")
				defer r.Release(nil)
				_, again, err := l.Acquire(lock.Detach(ctx), read, "r")
				again.Release(nil)
				return err
			},
			"the call that holds the key gives up its own wait": func() error {
				go func() {
					ctx, b, _ := l.Acquire(t.Context(), nil, "b")
					defer b.Release(nil)
					time.Sleep(time.Millisecond)
					_, _, err := l.Acquire(ctx, &lock.Policy{Wait: 300 * time.Millisecond}, "a")
					if !errors.Is(err, lock.ErrNotAcquired) {
						t.Error(err)
					}
				}()
				time.Sleep(100 * time.Microsecond)
				return nestKeys(t, []*lock.Locker{l}, nil, "a", "b")
			},
		} {
			require.NoError(t, run(), name)
			time.Sleep(time.Second) // the calls in the background end
			synctest.Wait()
		}
	})
}

// A victim that waited at the engine leaves nothing there.
func TestDeadlockAtTheEngineIsUndone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		one, two := newLocker(t, b, nil), newLocker(t, b, nil)
		require.Len(t, ring(t, 2, []*lock.Locker{one, two}, nil), 1)
		for _, key := range []string{"k0", "k1"} {
			_, held := acquire(t, t.Context(), one, &lock.Policy{Try: true}, key)
			require.NoError(t, release(held))
		}
	})
}

// The wait of a merged call inside other locks counts as a wait for the holder of its key.
func TestDeadlockOfAMergedCall(t *testing.T) {
	for name, first := range map[string]time.Duration{"the merged call looks first": 0, "the other looks first": 10 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				l := newLocker(t, memlock.New(), nil)
				m := lock.NewMerger[int, int](l, &lock.Policy{}, 8)
				limited, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				under := func(key string, after time.Duration, f func(context.Context) error) error {
					return l.Do(limited, nil, key, func(ctx context.Context) error {
						time.Sleep(5*time.Millisecond + after)
						return f(ctx)
					})
				}
				began, errs := time.Now(), make([]error, 2)
				concurrently(2, func(i int) {
					if i == 0 {
						errs[i] = under("x", first, func(ctx context.Context) error {
							_, err := m.Do(ctx, "k", 1, func(_ context.Context, reqs []int) ([]int, error) { return reqs, nil })
							return err
						})
						return
					}
					errs[i] = under("k", 10*time.Millisecond-first, func(ctx context.Context) error {
						return l.Do(ctx, nil, "x", func(context.Context) error { return nil })
					})
				})
				require.Less(t, time.Since(began), time.Second)
				require.Condition(t, func() bool { return (errs[0] == nil) != (errs[1] == nil) }, "%v", errs)
				require.ErrorIs(t, errors.Join(errs...), lock.ErrDeadlock)
			})
		})
	}
}
