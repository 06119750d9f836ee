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

// G3, G10, S62: a lease goes from one to the next without a command, each hold
// with a token of its own, strictly rising across leases and Lockers.
func TestEachHoldHasItsOwnToken(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		lockers := []*lock.Locker{newLocker(t, b, nil), newLocker(t, b, nil)}
		var tokens []uint64
		inside := &alone{t: t}
		together(100, func(i int) {
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

// The tenure: how long one process hands a lease on before others have their
// turn. It counts from the acquire and is bounded by a quarter of the lease.
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
				together(20, func(i int) {
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
				turns = turns[3 : len(turns)-3] // one alone, before and after the contest
				// The hold that is inside at the end of the tenure stays to its own.
				require.LessOrEqual(t, slices.Max(turns), tc.most+time.Millisecond)
				require.GreaterOrEqual(t, slices.Min(turns), tc.least)
			})
		})
	}
}

// A renewal makes the lease long again, and the tenure no longer: after a long
// section the other process has its turn.
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
		go enter("ours", l, (ttl+lock.DefaultHandOff)/3+time.Millisecond) // just after it was renewed
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

// S62, G10: two processes of 32 goroutines share a hot key evenly, and so do
// the goroutines.
func TestTurnsAreSharedEvenly(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := memlock.New()
		lockers := []*lock.Locker{newLocker(t, b, nil), newLocker(t, b, nil)}
		end := time.Now().Add(30 * time.Second)
		var shares [64]int
		together(64, func(i int) {
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

// S63: who gave up is passed over by the hand-off, and the lease is not lost.
func TestHandOffPassesOverWhoGaveUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		l := newLocker(t, b, nil)
		_, held := acquire(t, t.Context(), l, nil, "k")
		served := make(chan int, 64)
		for i := range 50 {
			go func() {
				// Odd ones give up at the very instant of the release.
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

// Each hold has at least its own ttl left when it begins, whichever policy the
// lease was taken under; and one under a short ttl does not keep the key for a
// long one if its process dies.
func TestDirectivesWithDifferentTTL(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newScripted()
		l := newLocker(t, b, nil)
		ttls := []time.Duration{time.Second, 3 * time.Second, 30 * time.Second}
		var longest time.Duration // of the leases since the last acquire at the engine
		b.onAcquire = func(_ context.Context, a *driver.Acquisition, do func() (driver.Lease, error)) (driver.Lease, error) {
			longest = a.TTL
			return do()
		}
		together(60, func(i int) {
			p := &lock.Policy{TTL: ttls[i%3], NoRenew: i >= 57}
			_, held := acquire(t, t.Context(), l, p, "k")
			require.GreaterOrEqual(t, longest, p.TTL)
			require.LessOrEqual(t, longest, p.TTL+20*time.Millisecond)
			time.Sleep(time.Millisecond)
			require.NoError(t, release(held))
		})
	})
}

// What a hold is handed lasts its whole ttl without a renewal.
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

// G3: the hand-off stops when the tokens that the lease reserves are spent.
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
		together(31, func(int) {
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

// G3: a release writes back the last token that was used, not the end of the block.
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
		together(40, func(int) {
			ctx, held := acquire(t, t.Context(), l, nil, "k")
			used = tokenOf(t, ctx)
			time.Sleep(time.Millisecond)
			require.NoError(t, release(held))
		})
		require.NotZero(t, last)
	})
}

// G2: what is over when the one that it was handed to wakes is not begun under, though
// no timer has fired yet: the process may have been paused in between.
func TestLeaseOverAsItIsHandedOn(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // nobody wakes while this goroutine runs
	var begun atomic.Int64
	for range 20 {
		bubble(t, func(t *testing.T) {
			b := &telling{scripted: newScripted()}
			grants := int64(0)
			b.onGrant = func(*tellingLease) { grants++ }
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
			time.Sleep(2 * ttl) // who has waited for longer than the lease has left looks at the clock
			require.NoError(t, release(held))
			held = <-next // with a block of tokens, because another waits
			require.NoError(t, release(held))
			over := b.last()
			over.mu.Lock()
			over.earlier = ttl
			over.mu.Unlock()
			(<-next).Release(nil) // lost, if it woke before
			synctest.Wait()
			require.Equal(t, grants, b.releases.Load(), "each lease is given back, once")
		})
	}
	require.Less(t, begun.Load(), int64(3), "but for a machine that stopped just there")
}
