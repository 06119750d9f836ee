package enginetest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/runtime/driver"
)

// Calls that share statements exclude each other, also two for one key in one batch, and
// tokens rise. Afterwards nothing is held.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	each(t, onTables, func(t *testing.T, s *site) {
		b := s.backend()
		alone := acquire(t, b, attempt("first", time.Minute))
		require.NoError(t, alone.Release(t.Context(), first(alone)))
		const goroutines, keys, cycles = 64, 40, 10
		var inside, last [keys]atomic.Int64
		var taken atomic.Int64
		var all sync.WaitGroup
		errs := make([]error, goroutines)
		for g := range goroutines {
			all.Go(func() {
				for range cycles {
					i := g % keys
					l, err := b.Acquire(t.Context(), attempt(fmt.Sprint("k", i), time.Minute))
					var held *driver.HeldError
					if errors.As(err, &held) {
						continue
					}
					taken.Add(1)
					if err != nil {
						errs[g] = err
						return
					}
					token := int64(first(l))
					if inside[i].Add(1) != 1 || last[i].Swap(token) >= token {
						errs[g] = fmt.Errorf("two are inside, or token %d does not rise", token)
					}
					inside[i].Add(-1)
					if err := l.Release(t.Context(), first(l)); err != nil {
						errs[g] = err
						return
					}
				}
			})
		}
		all.Wait()
		require.NoError(t, errors.Join(errs...))
		require.GreaterOrEqual(t, taken.Load(), int64(2*keys-goroutines)*cycles, "keys of one goroutine are free")
		require.Zero(t, s.held())
	})
}

// Of two leases on one key one is lost. Freed in one call, the other leaves its own last
// token.
func TestTwoLeasesOnAKeyAreFreed(t *testing.T) {
	t.Parallel()
	each(t, onTables, func(t *testing.T, s *site) {
		b := s.backend()
		lost := acquire(t, b, attempt("k", time.Minute))
		_, err := s.db.ExecContext(t.Context(), "UPDATE "+s.options.Table+" SET expires = 0")
		require.NoError(t, err)
		held := acquire(t, b, attempt("k", time.Minute))
		leases := []driver.Lease{lost, held}
		errs := b.ReleaseAll(t.Context(), leases, lasts(leases))
		require.ErrorIs(t, errs[0], driver.ErrLost)
		require.NoError(t, errs[1])
		require.EqualValues(t, first(held), s.number("SELECT version FROM "+s.options.Table))
	})
}
