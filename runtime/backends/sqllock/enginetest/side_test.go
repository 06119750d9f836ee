package enginetest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/sqllock"
	"github.com/lockgen/lockgen/runtime/driver"
)

var writing = &lock.Policy{Write: true}

// run runs a function of PostgreSQL about the advisory lock of key: "pg_try_advisory_lock".
func (o *others) run(function, key string) (done bool) {
	o.s.t.Helper()
	query := "SELECT " + function + "($1)"
	require.NoError(o.s.t, o.conn.QueryRowContext(o.s.t.Context(), query, sqllock.PostgresKey(key)).Scan(&done))
	return done
}

// Whoever reads and whoever writes excludes those who take PostgreSQL's advisory lock by hand,
// and lets in who reads as well; and the other way round.
func TestSidesAndOthers(t *testing.T) {
	each(t, hasSides, func(t *testing.T, s *site) {
		l, o, ctx := s.locker(nil), s.others(), t.Context()
		inside, held, err := l.Acquire(ctx, writing, "k")
		require.NoError(t, err)
		require.False(t, o.run("pg_try_advisory_lock_shared", "k"), "beside a writer")
		require.NoError(t, held.Downgrade(inside))
		require.True(t, o.run("pg_try_advisory_lock_shared", "k"), "beside a writer that reads now")
		require.True(t, o.run("pg_advisory_unlock_shared", "k"))
		require.False(t, o.run("pg_try_advisory_lock", "k"), "beside a reader")
		require.NoError(t, lock.Check(inside))
		held.Release(&err)
		require.NoError(t, err)

		require.True(t, o.run("pg_try_advisory_lock_shared", "k"))
		require.NoError(t, l.Do(ctx, &lock.Policy{Read: true, Try: true}, "k", func(context.Context) error { return nil }))
		require.ErrorIs(t, l.Do(ctx, &lock.Policy{Write: true, Try: true}, "k", func(context.Context) error { return nil }), lock.ErrNotAcquired)
		require.True(t, o.run("pg_advisory_unlock_shared", "k"))
		require.NoError(t, l.Do(ctx, writing, "k", func(context.Context) error { return nil }))
		s.requireFree("k")
	})
}

// A foreign client that waits to write does not come in while a writer becomes a reader, nor
// does it keep that from happening.
func TestDowngradeBesideOthers(t *testing.T) {
	each(t, hasSides, func(t *testing.T, s *site) {
		l := s.locker(nil)
		for range 50 {
			inside, held, err := l.Acquire(t.Context(), writing, "k")
			require.NoError(t, err)
			o, got := s.others(), make(chan error, 1)
			go func() { got <- o.block(t.Context(), "k") }()
			require.Eventually(t, func() bool {
				return s.number("SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'advisory' AND (classid::bigint << 32 | objid::bigint) = $1",
					sqllock.PostgresKey("k")) == 1
			}, patience, time.Millisecond)
			require.NoError(t, held.Downgrade(inside))
			select {
			case err := <-got:
				t.Fatalf("a foreign writer came in beside a reader: %v", err)
			case <-time.After(5 * time.Millisecond):
			}
			held.Release(&err)
			require.NoError(t, err)
			require.NoError(t, <-got)
			o.free("k")
			require.NoError(t, o.conn.Close())
		}
	})
}

// A reader whose session was killed hears of it within a third of its ttl; until its lease
// ends no writer of ours comes in.
func TestKilledReader(t *testing.T) {
	each(t, hasSides, func(t *testing.T, s *site) {
		const ttl = 6 * time.Second
		inside, held, err := s.locker(nil).Acquire(t.Context(), &lock.Policy{Read: true, TTL: ttl}, "k")
		require.NoError(t, err)
		killed := time.Now()
		s.end("k")
		w := s.backend()
		a := attempt("k", ttl)
		a.Mode, a.Queue = driver.Mode{Kind: driver.Write}, false
		_, err = w.Acquire(t.Context(), a)
		requireHeld(t, err) // by the record alone
		select {
		case <-inside.Done():
			require.ErrorIs(t, context.Cause(inside), lock.ErrLost)
			require.Less(t, time.Since(killed), ttl/3+time.Second+meter.Since(killed))
		case <-time.After(ttl):
			t.Fatal("it has not heard that its session was killed")
		}
		held.Release(&err)
		require.ErrorIs(t, err, lock.ErrLost)
		require.Eventually(t, func() bool {
			granted, err := w.Acquire(t.Context(), a)
			return err == nil && granted.Release(t.Context(), first(granted)) == nil
		}, patience, 10*time.Millisecond)
	})
}

// A mutex and a read-write lock on one key refuse each other, though the session of who held
// the one was killed.
func TestMutexBesideASideThatWasKilled(t *testing.T) {
	each(t, hasSides, func(t *testing.T, s *site) {
		b := s.backend()
		a := attempt("k", time.Minute)
		a.Mode = driver.Mode{Kind: driver.Read}
		acquire(t, b, a)
		s.end("k")
		_, err := s.backend().Acquire(t.Context(), attempt("k", time.Minute))
		require.ErrorIs(t, err, driver.ErrConflict)
		require.NoError(t, b.Undo(t.Context(), a))

		acquire(t, b, attempt("m", time.Minute))
		s.end("m")
		a = attempt("m", time.Minute)
		a.Mode = driver.Mode{Kind: driver.Write}
		_, err = s.backend().Acquire(t.Context(), a)
		require.ErrorIs(t, err, driver.ErrConflict)
	})
}
