package lock_test

import (
	"context"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/driver"
)

// G3, G10, S62: a lease is handed on from one hold to the next without a command. Each hold has its
// own token, and tokens strictly rise across leases and Lockers.
func TestEachHoldHasItsOwnToken(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		lockers := []*lock.Locker{newLocker(t, b, nil), newLocker(t, b, nil)}
		var tokens []uint64
		inside := &exclusion{t: t}
		concurrently(100, func(i int) {
			for range 10 {
				require.NoError(t, lockers[i%2].Do(t.Context(), nil, "k", func(ctx context.Context) error {
					inside.run(func() {
						tokens = append(tokens, tokenOf(t, ctx))
						time.Sleep(time.Millisecond)
					})
					return lock.Check(ctx)
				}))
			}
		})
		require.Len(t, tokens, 1000)
		require.True(t, slices.IsSorted(tokens))
		require.Len(t, slices.Compact(tokens), 1000)
		require.Less(t, b.releases.Load(), int64(120), "not handed on")
	})
}

// The tenure is how long one process hands a lease on before other processes get their turn. It
// counts from the acquire, and is at most a quarter of the lease.
func TestTenure(t *testing.T) {
	for _, tc := range []struct {
		name    string
		handOff time.Duration
		ttl     time.Duration
		most    time.Duration // the longest that one process holds the key
		least   time.Duration
	}{
		{"default", 0, ttl, 20 * time.Millisecond, 19 * time.Millisecond},
		{"set", 100 * time.Millisecond, ttl, 100 * time.Millisecond, 99 * time.Millisecond},
		{"never", -1, ttl, time.Millisecond, time.Millisecond},
		{"short lease", time.Hour, 80 * time.Millisecond, 25 * time.Millisecond, 19 * time.Millisecond},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				b := memlock.New()
				opts := &lock.Options{HandOff: tc.handOff}
				lockers := []*lock.Locker{newLocker(t, b, opts), newLocker(t, b, opts)}
				p := &lock.Policy{TTL: tc.ttl}
				end := time.Now().Add(3 * time.Second)
				owner, since := -1, time.Now()
				var turns []time.Duration
				concurrently(20, func(i int) {
					for time.Now().Before(end) {
						require.NoError(t, lockers[i%2].Do(t.Context(), p, "k", func(ctx context.Context) error {
							if owner != i%2 {
								turns = append(turns, time.Since(since))
								owner, since = i%2, time.Now()
							}
							time.Sleep(time.Millisecond)
							return nil
						}))
					}
				})
				require.Greater(t, len(turns), 10)
				turns = turns[3 : len(turns)-3] // one process is alone before and after the contest
				// The hold that is inside when the tenure ends continues to its own end.
				require.LessOrEqual(t, slices.Max(turns), tc.most+time.Millisecond)
				require.GreaterOrEqual(t, slices.Min(turns), tc.least)
			})
		})
	}
}

// A renewal extends the lease, but not the tenure: after a long hold the other process gets its
// turn.
func TestTenureIsNotRenewed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		l, other := newLocker(t, b, nil), newLocker(t, b.Backend, nil)
		_, held := acquire(t, t.Context(), l, renewed, "k")
		var order []string
		enter := func(name string, l *lock.Locker, stay time.Duration) {
			_, held := acquire(t, t.Context(), l, renewed, "k")
			order = append(order, name)
			time.Sleep(stay)
			require.NoError(t, release(held))
		}
		go enter("ours", l, (ttl+lock.DefaultHandOff)/3+time.Millisecond) // just after the renewal
		synctest.Wait()
		go enter("ours again", l, 0)
		synctest.Wait()
		require.NoError(t, release(held))
		synctest.Wait()
		go enter("theirs", other, 0)
		time.Sleep(ttl)
		synctest.Wait()
		require.Equal(t, []string{"ours", "theirs", "ours again"}, order)
		require.Positive(t, b.renewals.Load())
	})
}

// S62, G10: two processes with 32 goroutines each get equal shares of a hot key, and so do the
// goroutines.
func TestTurnsAreSharedEvenly(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := memlock.New()
		lockers := []*lock.Locker{newLocker(t, b, nil), newLocker(t, b, nil)}
		end := time.Now().Add(30 * time.Second)
		var shares [64]int
		concurrently(64, func(i int) {
			for time.Now().Before(end) {
				require.NoError(t, lockers[i%2].Do(t.Context(), nil, "k", func(context.Context) error {
					shares[i]++
					time.Sleep(time.Millisecond)
					return nil
				}))
			}
		})
		total := 0
		for _, n := range shares {
			total += n
		}
		least, most := slices.Min(shares[:]), slices.Max(shares[:])
		require.LessOrEqual(t, float64(most), 1.3*float64(least), "%v", shares)
		require.Greater(t, total, 29_000, "the key was idle")
	})
}

// S63: the hand-off passes over a waiter that gave up, and the lease is not lost.
func TestHandOffPassesOverAWaiterThatGaveUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		l := newLocker(t, b, nil)
		_, held := acquire(t, t.Context(), l, nil, "k")
		served := make(chan int, 64)
		for i := range 50 {
			go func() {
				// Every other waiter gives up at the very instant of the release.
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if i%2 == 1 {
					time.AfterFunc(time.Second, cancel)
				}
				_, held, err := l.Acquire(ctx, nil, "k")
				if err == nil {
					served <- i
					held.Release(nil)
				}
			}()
		}
		time.Sleep(time.Second)
		require.NoError(t, release(held))
		synctest.Wait()
		time.Sleep(time.Second)
		require.Zero(t, l.Entries())
		require.GreaterOrEqual(t, len(served), 25)
	})
}

// Each hold has at least its own ttl left when it begins, whatever policy the lease was taken
// under. A lease taken under a short ttl does not keep the key for a long ttl if its process dies.
func TestPoliciesWithDifferentTTL(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		l := newLocker(t, b, nil)
		ttls := []time.Duration{time.Second, 3 * time.Second, 30 * time.Second}
		var longest time.Duration // the longest lease since the last acquire at the engine
		b.onAcquire = func(_ context.Context, a *driver.Acquisition, do func() (driver.Lease, error)) (driver.Lease, error) {
			longest = a.TTL
			return do()
		}
		concurrently(60, func(i int) {
			p := &lock.Policy{TTL: ttls[i%3], NoRenew: i >= 57}
			_, held := acquire(t, t.Context(), l, p, "k")
			require.GreaterOrEqual(t, longest, p.TTL)
			require.LessOrEqual(t, longest, p.TTL+20*time.Millisecond)
			time.Sleep(time.Millisecond)
			require.NoError(t, release(held))
		})
	})
}

// A lease that is handed on to a hold lasts the hold's whole ttl without a renewal.
func TestHandedLeaseLastsTheWholeTTL(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		l := newLocker(t, b, nil)
		p := &lock.Policy{TTL: ttl, NoRenew: true}
		_, held := acquire(t, t.Context(), l, p, "k")
		for range 3 {
			done := make(chan struct{})
			go func() {
				defer close(done)
				_, held := acquire(t, t.Context(), l, p, "k")
				time.Sleep(15 * time.Millisecond)
				require.NoError(t, release(held))
			}()
			synctest.Wait()
			go func() {
				ctx, held := acquire(t, t.Context(), l, p, "k")
				began := time.Now()
				<-ctx.Done()
				require.GreaterOrEqual(t, time.Since(began), ttl-lock.Margin(ttl+20*time.Millisecond))
				require.ErrorIs(t, release(held), lock.ErrLost)
			}()
			synctest.Wait()
			held.Release(nil)
			<-done
			_, held = acquire(t, t.Context(), l, p, "k")
		}
		require.NoError(t, release(held))
	})
}

// G3: the hand-off stops when the tokens that the lease reserves are used up.
func TestHandOffStopsWhenTheTokensAreSpent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		b.onAcquire = func(_ context.Context, a *driver.Acquisition, do func() (driver.Lease, error)) (driver.Lease, error) {
			a.Tokens = min(a.Tokens, 3)
			return do()
		}
		b.onRelease = func(_ context.Context, last uint64, do func() error) error { return do() }
		l := newLocker(t, b, nil)
		var tokens []uint64
		concurrently(31, func(int) {
			ctx, held := acquire(t, t.Context(), l, nil, "k")
			tokens = append(tokens, tokenOf(t, ctx))
			time.Sleep(100 * time.Microsecond)
			require.NoError(t, release(held))
		})
		require.True(t, slices.IsSorted(tokens))
		require.Len(t, slices.Compact(tokens), 31)
		require.EqualValues(t, 1+10, b.releases.Load(), "the first lease was for one, each of the others for three")
	})
}

// G3: a release reports the last token that was used, not the last that was reserved.
func TestReleaseWritesBackTheLastToken(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		var used, last uint64
		b.onRelease = func(_ context.Context, n uint64, do func() error) error {
			last = n
			require.Equal(t, used, n)
			return do()
		}
		l := newLocker(t, b, nil)
		concurrently(40, func(int) {
			ctx, held := acquire(t, t.Context(), l, nil, "k")
			used = tokenOf(t, ctx)
			time.Sleep(time.Millisecond)
			require.NoError(t, release(held))
		})
		require.NotZero(t, last)
	})
}

// G2: no hold begins on a lease that is over when the waiter that gets it wakes, even if no timer
// has fired yet. The process may have been paused in between.
func TestLeaseOverAsItIsHandedOn(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // no other goroutine runs while this one does
	var begun atomic.Int64
	for range 20 {
		bubble(t, func(t *testing.T) {
			b := &lossNotifier{scripted: newScripted()}
			grants := int64(0)
			b.onGrant = func(*noticedLease) { grants++ }
			l := newLocker(t, b, nil)
			_, held := acquire(t, t.Context(), l, renewed, "k")
			next := make(chan *lock.Hold)
			for range 2 {
				go func() {
					ctx, held, err := l.Acquire(t.Context(), renewed, "k")
					assert.NoError(t, err)
					if lock.Check(ctx) != nil { // the method's first statement
						begun.Add(1)
					}
					next <- held
				}()
				synctest.Wait()
			}
			time.Sleep(2 * ttl) // a waiter that has waited for longer than the lease has left reads the clock
			require.NoError(t, release(held))
			held = <-next // with a block of tokens, because another call waits
			require.NoError(t, release(held))
			over := b.last()
			over.mu.Lock()
			over.earlier = ttl
			over.mu.Unlock()
			(<-next).Release(nil) // lost, if its goroutine woke before
			synctest.Wait()
			require.Equal(t, grants, b.releases.Load(), "each lease must be released once")
		})
	}
	require.Less(t, begun.Load(), int64(3), "a hold may begin on a lease that is over only if the machine stopped just there")
}
