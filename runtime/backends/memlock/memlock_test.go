package memlock_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/driver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ttl = 10 * time.Second

func attempt(key, id string) *driver.Acquisition {
	return &driver.Acquisition{Key: key, ID: id, TTL: ttl, Tokens: 1}
}

func taken(t *testing.T, b *memlock.Backend, a *driver.Acquisition) driver.Lease {
	t.Helper()
	lease, err := b.Acquire(t.Context(), a)
	require.NoError(t, err)
	return lease
}

func requireHeld(t *testing.T, b *memlock.Backend, a *driver.Acquisition, left time.Duration) {
	t.Helper()
	_, err := b.Acquire(t.Context(), a)
	var held *driver.HeldError
	require.ErrorAs(t, err, &held)
	require.Equal(t, left, held.RetryAfter)
}

func firstToken(l driver.Lease) uint64 {
	first, _ := l.Tokens()
	return first
}

// A key has one owner at a time, until the owner releases it or its lease ends.
func TestExclusion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memlock.New()
		lease := taken(t, b, attempt("k", "A:1"))
		require.Equal(t, ttl, lease.Deadline().Left())
		time.Sleep(time.Second)
		requireHeld(t, b, attempt("k", "B:1"), ttl-time.Second)
		requireHeld(t, b, attempt("k", "A:2"), ttl-time.Second)
		taken(t, b, attempt("k2", "B:1"))
		require.NoError(t, lease.Release(t.Context(), firstToken(lease)))
		second := taken(t, b, attempt("k", "B:2"))
		time.Sleep(ttl - 1)
		requireHeld(t, b, attempt("k", "A:3"), 1)
		time.Sleep(time.Nanosecond)
		third := taken(t, b, attempt("k", "A:4"))
		require.Greater(t, firstToken(third), firstToken(second))
		require.Greater(t, firstToken(second), firstToken(lease))
	})
}

// An acquisition that is repeated has one lease, with new tokens.
func TestAcquireIsIdempotent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memlock.New()
		first, second := taken(t, b, attempt("k", "A:1")), taken(t, b, attempt("k", "A:1"))
		require.Greater(t, firstToken(second), firstToken(first))
		require.NoError(t, second.Release(t.Context(), firstToken(second)))
		taken(t, b, attempt("k", "B:1"))
	})
}

// S18, S31, S54, S97: a caller that is not the owner gets ErrLost and changes nothing. A renewal
// never creates a lease again.
func TestOnlyTheOwnerRenewsAndReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memlock.New()
		old := taken(t, b, attempt("k", "A:1"))
		notMine := func() {
			t.Helper()
			require.ErrorIs(t, old.Renew(t.Context(), ttl), lock.ErrLost)
			require.ErrorIs(t, old.Release(t.Context(), firstToken(old)), lock.ErrLost)
		}
		require.NoError(t, old.Release(t.Context(), firstToken(old)))
		notMine()
		current := taken(t, b, attempt("k", "A:2")) // the next acquisition of the same client
		notMine()
		requireHeld(t, b, attempt("k", "B:1"), ttl)
		require.NoError(t, current.Renew(t.Context(), 2*ttl))
		require.Equal(t, 2*ttl, current.Deadline().Left())
		time.Sleep(2 * ttl)
		require.ErrorIs(t, current.Renew(t.Context(), ttl), lock.ErrLost, "it had ended")
		taken(t, b, attempt("k", "B:2"))
		require.ErrorIs(t, current.Release(t.Context(), firstToken(current)), lock.ErrLost)
		requireHeld(t, b, attempt("k", "A:3"), ttl)
	})
}

// The release of a lease that has ended returns ErrLost, whoever has the key now.
func TestReleaseAfterTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memlock.New()
		lease := taken(t, b, attempt("k", "A:1"))
		time.Sleep(ttl)
		require.ErrorIs(t, lease.Release(t.Context(), firstToken(lease)), lock.ErrLost)
		taken(t, b, attempt("k", "B:1"))
	})
}

// G3: a lease reserves a block of tokens, and its release reports the last one that was used.
// Tokens rise across crashes and forgotten records.
func TestTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memlock.New()
		block := func(id string, n uint64) (driver.Lease, uint64) {
			a := attempt("k", id)
			a.Tokens = n
			lease := taken(t, b, a)
			first, got := lease.Tokens()
			require.Equal(t, n, got)
			return lease, first
		}
		lease, first := block("A:1", 1000)
		require.NoError(t, lease.Release(t.Context(), first+2))
		_, second := block("A:2", 1000)
		require.Equal(t, first+3, second)
		time.Sleep(ttl) // the owner has died
		lease, third := block("B:1", 1)
		require.GreaterOrEqual(t, third, second+1000)
		require.NoError(t, lease.Release(t.Context(), third))
		time.Sleep(time.Millisecond)
		_, fourth := block("B:2", 1)
		require.Greater(t, fourth, third)
		require.Less(t, fourth, uint64(1)<<53)
	})
}

// G6: Undo frees the lock of its own acquisition, and of no other.
func TestUndo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memlock.New()
		lease := taken(t, b, attempt("k", "A:1"))
		require.NoError(t, b.Undo(t.Context(), attempt("k", "A:2")))
		require.NoError(t, b.Undo(t.Context(), attempt("k", "B:1")))
		require.NoError(t, b.Undo(t.Context(), attempt("other", "A:1")))
		requireHeld(t, b, attempt("k", "B:1"), ttl)
		require.NoError(t, b.Undo(t.Context(), attempt("k", "A:1")))
		require.ErrorIs(t, lease.Renew(t.Context(), ttl), lock.ErrLost)
		next := taken(t, b, attempt("k", "B:1"))
		require.Greater(t, firstToken(next), firstToken(lease))
	})
}

func TestRenewAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memlock.New()
		mine, gone := taken(t, b, attempt("a", "A:1")), taken(t, b, attempt("b", "A:2"))
		require.NoError(t, gone.Release(t.Context(), firstToken(gone)))
		errs := b.RenewAll(t.Context(), []driver.Lease{mine, gone}, []time.Duration{3 * ttl, ttl})
		require.Len(t, errs, 2)
		require.NoError(t, errs[0])
		require.ErrorIs(t, errs[1], lock.ErrLost)
		require.Equal(t, 3*ttl, mine.Deadline().Left())
	})
}

// S98: free keys are forgotten, and so are those of dead owners. Tokens rise nevertheless.
func TestRecordsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memlock.New()
		last := map[string]uint64{}
		for i := range 10_000 {
			key := fmt.Sprint("k", i%5000)
			lease := taken(t, b, attempt(key, fmt.Sprint("A:", i)))
			require.Greater(t, firstToken(lease), last[key])
			last[key] = firstToken(lease)
			if i%2 == 0 { // the other owners die while they hold the lock
				time.Sleep(time.Microsecond)
				require.NoError(t, lease.Release(t.Context(), firstToken(lease)))
			}
			if i == 4999 {
				time.Sleep(ttl)
			}
		}
		require.LessOrEqual(t, b.Records(), 2*2500)
		time.Sleep(ttl)
		for i := range 20_000 { // in each part of the table
			lease := taken(t, b, attempt(fmt.Sprint("other", i), "A:0"))
			time.Sleep(time.Microsecond)
			require.NoError(t, lease.Release(t.Context(), firstToken(lease)))
		}
		require.Zero(t, b.Records())
	})
}

// The records of other kinds of lock are forgotten as well, even if no mutex is taken any more.
func TestOtherKindsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memlock.New()
		for i := range 10_000 {
			a := attempt(fmt.Sprint("k", i), fmt.Sprint("A:", i))
			a.Mode.Kind = driver.Fair
			lease := taken(t, b, a)
			require.NoError(t, lease.Release(t.Context(), firstToken(lease)))
			time.Sleep(10 * time.Millisecond)
		}
		require.Less(t, b.Values(), 3000)
	})
}

// Many Lockers of one Backend exclude each other, in real time.
func TestManyLockers(t *testing.T) {
	b := memlock.New()
	var inside, total int // guarded by the lock under test; the race detector checks that
	var wg sync.WaitGroup
	for range 4 {
		l := lock.New(b, nil)
		defer func() { require.NoError(t, l.Close(context.Background())) }()
		for range 8 {
			wg.Go(func() {
				for range 50 {
					err := l.Do(context.Background(), nil, "k", func(ctx context.Context) error {
						inside++
						if inside != 1 {
							t.Error("two are inside at once")
						}
						total++
						inside--
						return nil
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	wg.Wait()
	require.Equal(t, 4*8*50, total)
}
