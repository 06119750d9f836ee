package lock_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/driver"
)

const stickyFor = 2 * time.Second

var sticky = &lock.Policy{Method: "S.M", TTL: 30 * time.Second, Sticky: stickyFor}

// cycle locks key for a millisecond and returns the token.
func cycle(t *testing.T, l *lock.Locker, p *lock.Policy, key string) (token uint64) {
	t.Helper()
	require.NoError(t, l.Do(t.Context(), p, key, func(ctx context.Context) error {
		token = tokenOf(t, ctx)
		time.Sleep(time.Millisecond)
		return lock.Check(ctx)
	}))
	return token
}

// Repeated locking of one key by one process costs no command, and each hold has its own token. The
// lease is released once nobody has used it for the time of Sticky.
func TestStickyLeaseStays(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		l := newLocker(t, b, nil)
		var last uint64
		for range 10 {
			token := cycle(t, l, sticky, "k")
			require.Greater(t, token, last)
			last = token
			require.Equal(t, 1, l.Snapshot().Idle)
			require.Empty(t, l.Snapshot().Holds)
			time.Sleep(stickyFor - 100*time.Millisecond)
		}
		require.EqualValues(t, 1, b.acquires.Load())
		require.Zero(t, b.releases.Load())
		require.Positive(t, b.renewals.Load())
		time.Sleep(100*time.Millisecond - 2*time.Millisecond)
		require.Equal(t, 1, l.Snapshot().Idle)
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		require.EqualValues(t, 1, b.releases.Load())
		require.Zero(t, l.Entries())
		require.Greater(t, cycle(t, l, sticky, "k"), last)
	})
}

// A lease is released after ten times Sticky, however much it is used, because the notice of
// another process that waits may be lost.
func TestStickyLeaseIsReleasedNowAndThen(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		l := newLocker(t, b, nil)
		for began := time.Now(); time.Since(began) < 25*stickyFor; {
			cycle(t, l, sticky, "k")
		}
		require.EqualValues(t, 3, b.acquires.Load())
	})
}

// Another process that waits gets an idle lease at once. It gets a lease that is held as soon as
// the hold ends.
func TestStickyLeaseIsRecalled(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		l, other := newLocker(t, b, nil), newLocker(t, b.Backend, nil)
		for _, p := range []*lock.Policy{sticky, nil} {
			first := cycle(t, l, sticky, "k")
			_, _, err := other.Acquire(t.Context(), &lock.Policy{Try: true}, "k")
			require.ErrorIs(t, err, lock.ErrNotAcquired) // a Try does not wait
			began := time.Now()
			require.Greater(t, cycle(t, other, p, "k"), first)
			require.Equal(t, time.Millisecond, time.Since(began))
		}

		_, held := acquire(t, t.Context(), l, sticky, "k")
		began, done := time.Now(), make(chan struct{})
		go func() { defer close(done); cycle(t, other, nil, "k") }()
		time.Sleep(time.Second)
		require.NoError(t, release(held))
		<-done
		require.Equal(t, time.Second+time.Millisecond, time.Since(began))
	})
}

// If a process is stopped while its lease is idle, others wait for as long as Sticky, or as the ttl
// if that is less, even if the ttl is far longer.
func TestStoppedIdleOwnerCostsSticky(t *testing.T) {
	for _, p := range []*lock.Policy{sticky, {TTL: time.Second, Sticky: time.Minute}} {
		bubble(t, func(t *testing.T) {
			b := newScripted()
			var stopped atomic.Bool
			b.onRelease = func(ctx context.Context, _ uint64, do func() error) error {
				if stopped.Load() {
					return hang(ctx, do)
				}
				return do()
			}
			b.onRenew = func(ctx context.Context, do func() error) error {
				if stopped.Load() {
					return hang(ctx, do)
				}
				return do()
			}
			l, other := newLocker(t, b, nil), newLocker(t, b.Backend, nil)
			for began := time.Now(); time.Since(began) < 3*time.Second; {
				cycle(t, l, p, "k")
			}
			stopped.Store(true)
			began := time.Now()
			cycle(t, other, nil, "k")
			require.LessOrEqual(t, time.Since(began), min(p.TTL, p.Sticky)+2*time.Millisecond)
			require.Greater(t, time.Since(began), min(p.TTL, p.Sticky)/2)
			stopped.Store(false)
		})
	}
}

// An idle lease that the engine has lost is not handed on.
func TestLostIdleLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		var a driver.Acquisition
		b.onAcquire = func(_ context.Context, asked *driver.Acquisition, do func() (driver.Lease, error)) (driver.Lease, error) {
			a = *asked
			return do()
		}
		o := &heard{}
		l := newLocker(t, b, &lock.Options{Observer: o})
		cycle(t, l, sticky, "k")
		require.NoError(t, b.Backend.Undo(t.Context(), &a)) // as an operator may
		time.Sleep(stickyFor / 3)
		synctest.Wait()
		require.Zero(t, l.Snapshot().Idle)
		cycle(t, l, sticky, "k")
		require.EqualValues(t, 2, b.acquires.Load())
		for _, kind := range o.kinds() {
			require.NotEqual(t, lock.Lost, kind) // nobody held it
		}
	})
}

// No hold begins on an idle lease whose renewals have no answer. The engine may still have the
// lease, so it is released.
func TestIdleLeaseThatIsNotRenewed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		b.onRenew = func(context.Context, func() error) error { return context.DeadlineExceeded }
		l := newLocker(t, b, nil)
		cycle(t, l, sticky, "k")
		time.Sleep(stickyFor * 3 / 4)
		require.Equal(t, 1, l.Snapshot().Idle)
		cycle(t, l, sticky, "k")
		require.EqualValues(t, 2, b.acquires.Load())
		require.EqualValues(t, 1, b.releases.Load())
		time.Sleep(stickyFor - 10*time.Millisecond)
		require.EqualValues(t, 2, b.releases.Load()) // the lease is over by its deadline
	})
}

// During a long hold a renewal extends the lease to the policy's ttl. Such a lease is not kept
// idle.
func TestLongHoldOnAStickyLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		var down atomic.Bool
		b.onRenew = func(_ context.Context, do func() error) error {
			if down.Load() {
				return context.DeadlineExceeded
			}
			return do()
		}
		l := newLocker(t, b, nil)
		cycle(t, l, sticky, "k")
		ctx, held := acquire(t, t.Context(), l, sticky, "k")
		require.LessOrEqual(t, time.Until(held.Deadline()), stickyFor)
		time.Sleep(stickyFor)
		require.Greater(t, time.Until(held.Deadline()), sticky.TTL-stickyFor)
		down.Store(true)
		time.Sleep(sticky.TTL / 2)
		require.NoError(t, lock.Check(ctx))
		require.NoError(t, release(held))
		require.Zero(t, l.Entries())
		require.EqualValues(t, 1, b.releases.Load())
	})
}

// A call that can't use the idle lease asks the engine. A call that can use it sends nothing, even
// if it does not wait.
func TestWhoMayHaveAnIdleLease(t *testing.T) {
	for name, tc := range map[string]struct {
		policy   lock.Policy
		acquires int64
	}{
		"the same":     {*sticky, 1},
		"try":          {lock.Policy{TTL: sticky.TTL, Sticky: stickyFor, Try: true}, 1},
		"reentrant":    {lock.Policy{TTL: sticky.TTL, Sticky: stickyFor, Reentrant: true, Max: time.Minute}, 1},
		"another ttl":  {lock.Policy{Sticky: stickyFor, TTL: time.Second}, 2},
		"another time": {lock.Policy{TTL: sticky.TTL, Sticky: time.Second}, 2},
		"not sticky":   {lock.Policy{TTL: time.Second}, 2},
		"not, and try": {lock.Policy{TTL: time.Second, Try: true}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				b := newScripted()
				l := newLocker(t, b, nil)
				first := cycle(t, l, sticky, "k")
				require.Greater(t, cycle(t, l, &tc.policy, "k"), first)
				require.EqualValues(t, tc.acquires, b.acquires.Load())
				cycle(t, l, sticky, "k2")
				_, held, err := l.AcquireAll(t.Context(), lock.Request{Policy: &tc.policy, Key: "k"}, lock.Request{Policy: &tc.policy, Key: "k2"})
				require.NoError(t, err)
				require.NoError(t, release(held))
			})
		})
	}
}

// G12: Close releases idle leases at once, and waits for these releases.
func TestCloseReleasesIdleLeases(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		b.onRelease = func(_ context.Context, _ uint64, do func() error) error {
			time.Sleep(50 * time.Millisecond)
			return do()
		}
		l, other := lock.New(b, nil), newLocker(t, b.Backend, nil)
		cycle(t, l, sticky, "idle")
		_, held := acquire(t, t.Context(), l, sticky, "held")
		closed := make(chan error)
		go func() { closed <- l.Close(t.Context()) }()
		time.Sleep(60 * time.Millisecond)
		cycle(t, other, &lock.Policy{Try: true}, "idle")
		require.NoError(t, release(held)) // the lease is not kept idle any more
		require.NoError(t, <-closed)
		cycle(t, other, &lock.Policy{Try: true}, "held")
		require.Zero(t, l.Entries())
		require.Zero(t, l.Watched())
	})
}

// If Options.HandOff says that each hold has its own lease, no lease is kept idle.
func TestStickyWithoutHandOff(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		l := newLocker(t, b, &lock.Options{HandOff: -1})
		cycle(t, l, sticky, "k")
		require.EqualValues(t, 1, b.releases.Load())
	})
}

// noRecall is an engine that can't tell whether another process waits.
type noRecall struct{ driver.Backend }

func TestStickyIsRefused(t *testing.T) {
	l := newLocker(t, memlock.New(), nil)
	for want, p := range map[string]*lock.Policy{
		"Sticky is -1s":                         {Sticky: -time.Second},
		"Sticky is 1µs; the shortest is 1ms":    {Sticky: time.Microsecond},
		"Sticky is 2562047h":                    {Sticky: 1<<63 - 1},
		"Sticky is for mutexes":                 {Sticky: time.Second, Fair: true},
		"Sticky and NoRenew exclude each other": {Sticky: time.Second, NoRenew: true},
		"Sticky and Delay exclude each other":   {Sticky: time.Second, TTL: time.Second, Delay: time.Second},
	} {
		_, _, err := l.Acquire(t.Context(), p, "k")
		require.ErrorIs(t, err, lock.ErrInvalid)
		require.ErrorContains(t, err, want)
	}
	l.MustSupport(sticky)
	refusing := newLocker(t, noRecall{memlock.New()}, nil)
	require.PanicsWithError(t, "lock: policy (S.M): invalid: the backend lock_test.noRecall does not tell when another "+
		"process waits for a lock that is kept idle, so Sticky can't be kept there; leave it out", func() { refusing.MustSupport(sticky) })
}

// G1, G3, G10: processes lock the key with and without Sticky, hold it for long and briefly, pause
// and give up. They exclude each other, and all get their turn.
func TestStickyStorm(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		var mu sync.Mutex
		rnd := rand.New(rand.NewPCG(16, 5))
		var draw = func(n int) time.Duration {
			mu.Lock()
			defer mu.Unlock()
			return time.Duration(rnd.IntN(n)) * time.Millisecond
		}
		b.onRelease = func(_ context.Context, _ uint64, do func() error) error {
			time.Sleep(time.Millisecond)
			return do()
		}
		policies := []*lock.Policy{sticky, sticky, {TTL: time.Second, Sticky: 20 * time.Millisecond}, {TTL: time.Second}}
		lockers := []*lock.Locker{newLocker(t, b, nil), newLocker(t, b, nil), newLocker(t, b, nil)}
		inside := &exclusion{t: t}
		var last uint64
		var done [12]int
		end := time.Now().Add(time.Minute)
		concurrently(len(done), func(i int) {
			for time.Now().Before(end) {
				ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
				err := lockers[i%3].Do(ctx, policies[i%4], "k", func(ctx context.Context) error {
					inside.run(func() {
						token := tokenOf(t, ctx)
						require.Greater(t, token, last)
						last = token
						done[i]++
						time.Sleep(draw(5))
					})
					return lock.Check(ctx)
				})
				cancel()
				if err != nil {
					require.ErrorIs(t, err, lock.ErrNotAcquired)
				}
				time.Sleep(draw(200))
			}
		})
		for _, n := range done {
			require.Greater(t, n, 100)
		}
	})
}

// A lease that another process asked for while it was held is not kept idle, however short the hold
// was.
func TestStickyAskedForWhileHeld(t *testing.T) {
	for _, short := range []time.Duration{time.Millisecond, time.Second} {
		bubble(t, func(t *testing.T) {
			engine := memlock.New()
			l, other := newLocker(t, engine, nil), newLocker(t, engine, nil)
			_, held := acquire(t, t.Context(), l, &lock.Policy{TTL: 3 * time.Second, Sticky: 3 * time.Second}, "k")
			begin, done := time.Now(), make(chan time.Duration)
			go func() {
				_, theirs := acquire(t, t.Context(), other, nil, "k")
				done <- time.Since(begin)
				require.NoError(t, release(theirs))
			}()
			time.Sleep(short)
			require.NoError(t, release(held))
			require.Equal(t, short, <-done)
		})
	}
}

// G2: if Sticky is short compared with a round trip to the engine, a lease of that length would be
// over before its renewal is answered. No hold begins on such a lease: it is released, and the hold
// gets the policy's ttl.
func TestStickyWithASlowEngine(t *testing.T) {
	const roundTrip = 10 * time.Millisecond
	for _, c := range []struct {
		sticky time.Duration
		kept   bool
	}{{roundTrip / 2, false}, {roundTrip * 3 / 2, false}, {roundTrip * 4, true}} {
		bubble(t, func(t *testing.T) {
			b := newScripted()
			b.onAcquire = func(_ context.Context, _ *driver.Acquisition, do func() (driver.Lease, error)) (driver.Lease, error) {
				defer time.Sleep(roundTrip)
				return do()
			}
			b.onRenew = func(_ context.Context, do func() error) error {
				defer time.Sleep(roundTrip)
				return do()
			}
			l, p := newLocker(t, b, nil), &lock.Policy{TTL: time.Second, Sticky: c.sticky}
			require.NoError(t, l.Do(t.Context(), p, "k", func(ctx context.Context) error {
				time.Sleep(200 * time.Millisecond)
				return lock.Check(ctx)
			}))
			cycle(t, l, p, "k")
			require.Equal(t, c.kept, l.Snapshot().Idle == 1)
		})
	}
}
