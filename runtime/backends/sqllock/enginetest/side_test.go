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

// run calls a function of PostgreSQL on the advisory lock of key. An example is "pg_try_advisory_lock".
func (o *foreignClient) run(function, key string) (done bool) {
	o.s.t.Helper()
	query := "SELECT " + function + "($1)"
	require.NoError(o.s.t, o.conn.QueryRowContext(o.s.t.Context(), query, sqllock.PostgresKey(key)).Scan(&done))
	return done
}

// A reader and a writer exclude clients that take PostgreSQL's advisory lock by hand, but a reader
// lets in clients that read as well. The same is true the other way round.
func TestReadWriteLocksAndForeignClients(t *testing.T) {
	each(t, hasReadWriteLocks, func(t *testing.T, s *site) {
		l, o, ctx := s.locker(nil), s.foreignClient(), t.Context()
		inside, held, err := l.Acquire(ctx, writing, "k")
		require.NoError(t, err)
		require.False(t, o.run("pg_try_advisory_lock_shared", "k"), "while a writer holds the lock")
		require.NoError(t, held.Downgrade(inside))
		require.True(t, o.run("pg_try_advisory_lock_shared", "k"), "after the writer has become a reader")
		require.True(t, o.run("pg_advisory_unlock_shared", "k"))
		require.False(t, o.run("pg_try_advisory_lock", "k"), "while a reader holds the lock")
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

// A foreign client that waits to write is not let in while a writer becomes a reader, and does not
// prevent this.
func TestDowngradeWhileAForeignClientWaits(t *testing.T) {
	each(t, hasReadWriteLocks, func(t *testing.T, s *site) {
		l := s.locker(nil)
		for range 50 {
			inside, held, err := l.Acquire(t.Context(), writing, "k")
			require.NoError(t, err)
			o, got := s.foreignClient(), make(chan error, 1)
			go func() { got <- o.block(t.Context(), "k") }()
			require.Eventually(t, func() bool {
				return s.number("SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'advisory'"+
					" AND (classid::bigint << 32 | objid::bigint) = $1",
					sqllock.PostgresKey("k")) == 1
			}, waitLimit, time.Millisecond)
			require.NoError(t, held.Downgrade(inside))
			select {
			case err := <-got:
				t.Fatalf("a foreign writer got the lock while a reader holds it: %v", err)
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

// A reader whose session was killed learns of it within a third of its ttl. Until its lease
// ends, no writer of ours gets the lock.
func TestKilledReader(t *testing.T) {
	each(t, hasReadWriteLocks, func(t *testing.T, s *site) {
		const ttl = 6 * time.Second
		inside, held, err := s.locker(nil).Acquire(t.Context(), &lock.Policy{Read: true, TTL: ttl}, "k")
		require.NoError(t, err)
		killed := time.Now()
		s.end("k")
		w := s.backend()
		a := attempt("k", ttl)
		a.Mode, a.Queue = driver.Mode{Kind: driver.Write}, false
		_, err = w.Acquire(t.Context(), a)
		requireHeld(t, err) // because of the record alone
		select {
		case <-inside.Done():
			require.ErrorIs(t, context.Cause(inside), lock.ErrLost)
			require.Less(t, time.Since(killed), ttl/3+time.Second+meter.Since(killed))
		case <-time.After(ttl):
			t.Fatal("the reader has not learned that its session was killed")
		}
		held.Release(&err)
		require.ErrorIs(t, err, lock.ErrLost)
		require.Eventually(t, func() bool {
			granted, err := w.Acquire(t.Context(), a)
			return err == nil && granted.Release(t.Context(), first(granted)) == nil
		}, waitLimit, 10*time.Millisecond)
	})
}

// A mutex and a read-write lock on one key refuse each other, although the session of the holder
// was killed.
func TestMutexAndAKilledReadWriteLock(t *testing.T) {
	each(t, hasReadWriteLocks, func(t *testing.T, s *site) {
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
