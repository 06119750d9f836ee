package enginetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/runtime/backends/sqllock"
)

// onPgxPool returns a Backend on a pool of pgx. The pool keeps the sessions that the *sql.DB on it closes.
func (s *site) onPgxPool() *sqllock.Backend {
	s.t.Helper()
	pool, err := pgxpool.New(s.t.Context(), s.source(s.addr)+"&pool_max_conns=20")
	require.NoError(s.t, err)
	s.t.Cleanup(pool.Close)
	db := stdlib.OpenDBFromPool(pool)
	s.t.Cleanup(func() { _ = db.Close() })
	return s.backendOn(db)
}

// A lock whose lease has ended is free for others, although the pool keeps its session.
func TestPgxPoolAfterTheLease(t *testing.T) {
	s := variant{"postgres", sqllock.Advisory}.site(t, "")
	key := s.options.Table
	l := acquire(t, s.onPgxPool(), attempt(key, time.Second))
	require.True(t, s.hasRawLock(key) || l.Deadline().Left() <= 0)
	require.Eventually(t, func() bool { return !s.hasRawLock(key) }, waitLimit, 20*time.Millisecond)
	acquire(t, s.backend(), attempt(key, time.Minute))
}

// Acquires that were given up at any point leave no locks.
func TestPgxPoolAfterAnUndo(t *testing.T) {
	s := variant{"postgres", sqllock.Advisory}.site(t, "")
	l := lockerOn(t, s.onPgxPool(), nil)
	var keys []string
	for i := range 300 {
		keys = append(keys, fmt.Sprint(s.options.Table, i))
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%60)*50*time.Microsecond)
		if _, h, err := l.Acquire(ctx, nil, keys[i]); err == nil {
			h.Release(&err)
			require.NoError(t, err)
		}
		cancel()
	}
	for _, key := range keys {
		require.Eventually(t, func() bool { return !s.hasRawLock(key) }, waitLimit, 20*time.Millisecond, key)
	}
}
