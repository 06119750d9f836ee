package enginetest

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/fence"
)

// Two transactions pass the gate at the same time. Once the newer token has passed, the
// older one is refused, whichever came first.
func TestGate(t *testing.T) {
	dialects := map[string]fence.Dialect{"mariadb": fence.MySQL, "postgres": fence.PostgreSQL, "sqlite": fence.SQLite}
	for name, e := range engines {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			db := e.open(t, e.shared(t))
			gate, err := fence.NewGate(dialects[name], "gate_of_test")
			require.NoError(t, err)
			require.NoError(t, gate.Migrate(ctx, db))
			require.NoError(t, gate.Migrate(ctx, db), "a second time")
			defer db.Exec("DROP TABLE gate_of_test")

			pass := func(key string, token int64, end func(*sql.Tx) error) error {
				tx, err := db.BeginTx(ctx, nil)
				require.NoError(t, err)
				err = gate.Advance(ctx, tx, key, token)
				if err != nil {
					end = (*sql.Tx).Rollback
				}
				require.NoError(t, end(tx))
				return err
			}
			commit, rollback := (*sql.Tx).Commit, (*sql.Tx).Rollback
			require.NoError(t, pass("a", 7, commit))
			require.NoError(t, pass("a", 7, commit), "a holder writes more than once")
			require.NoError(t, pass("A", 1, commit), "keys are compared byte by byte")
			require.NoError(t, pass("a", 9, rollback))
			require.NoError(t, pass("a", 8, commit), "9 was rolled back")
			require.ErrorIs(t, pass("a", 7, commit), fence.ErrStale)
			require.NoError(t, pass("a", 1<<62, commit))
			require.ErrorIs(t, pass("a", 1<<62-1, commit), fence.ErrStale)
			require.Error(t, pass("", 1, commit))
			require.Error(t, pass("a", 0, commit))

			// An older holder that comes while a newer one writes waits for the newer one's commit, and is refused.
			newer, err := db.BeginTx(ctx, nil)
			require.NoError(t, err)
			require.NoError(t, gate.Advance(ctx, newer, "b", 20))
			refused := make(chan error, 1)
			go func() { refused <- passAlone(ctx, db, gate, "b", 19) }()
			require.NoError(t, newer.Commit())
			require.ErrorIs(t, <-refused, fence.ErrStale)

			locker := lock.New(memlock.New(), nil)
			defer func() { require.NoError(t, locker.Close(ctx)) }()
			require.NoError(t, locker.Do(ctx, nil, "c", func(ctx context.Context) error {
				tx, err := db.BeginTx(ctx, nil)
				require.NoError(t, err)
				require.NoError(t, gate.Pass(ctx, tx, "c"))
				require.ErrorIs(t, gate.Pass(ctx, tx, "d"), lock.ErrNotHeld)
				return tx.Commit()
			}))
			require.ErrorIs(t, pass("c", 1, commit), fence.ErrStale, "the token of the lock is higher")
		})
	}
}

// If two processes create the table at once, both succeed.
func TestGateIsMadeTwiceAtOnce(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	e := engines["postgres"]
	db := e.open(t, e.shared(t))
	gate, err := fence.NewGate(fence.PostgreSQL, "gate_made_twice")
	require.NoError(t, err)
	defer db.Exec("DROP TABLE gate_made_twice")
	first, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	_, err = first.ExecContext(ctx, gate.Schema())
	require.NoError(t, err)
	second := make(chan error, 1)
	go func() { second <- gate.Migrate(ctx, db) }()
	require.Eventually(t, func() bool {
		var waits int
		const query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%gate_made_twice%'"
		err := db.QueryRowContext(ctx, query).Scan(&waits)
		return err == nil && waits > 0
	}, waitLimit, 10*time.Millisecond)
	require.NoError(t, first.Commit())
	require.NoError(t, <-second)
}

func passAlone(ctx context.Context, db *sql.DB, gate *fence.Gate, key string, token int64) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := gate.Advance(ctx, tx, key, token); err != nil {
		_ = tx.Rollback()
		return err
	}
	return tx.Commit()
}
