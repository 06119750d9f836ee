package flash

import (
	"database/sql"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
)

func each(t *testing.T, run func(t *testing.T, db *sql.DB)) {
	for driver, source := range map[string]func(t *testing.T) string{
		"mysql": func(t *testing.T) string { return "root@tcp(" + testserver.MySQL(t) + ")/flash_test" },
		"pgx": func(t *testing.T) string {
			return "postgres://lockgen@" + testserver.Postgres(t) + "/postgres?sslmode=disable"
		},
	} {
		t.Run(driver, func(t *testing.T) {
			name := source(t)
			if driver == "mysql" {
				admin, err := sql.Open(driver, name[:len(name)-len("flash_test")])
				require.NoError(t, err)
				_, err = admin.ExecContext(t.Context(), "CREATE DATABASE IF NOT EXISTS flash_test")
				require.NoError(t, err)
				require.NoError(t, admin.Close())
			}
			db, err := sql.Open(driver, name)
			require.NoError(t, err)
			defer func() { require.NoError(t, db.Close()) }()
			run(t, db)
		})
	}
}

// All that was confirmed is in the database, and nothing else, with and without merge.
func TestSalesAreExact(t *testing.T) {
	each(t, func(t *testing.T, db *sql.DB) {
		locker := lock.New(memlock.New(), nil)
		defer func() { require.NoError(t, locker.Close(t.Context())) }()
		alone, merged, err := Compare(t.Context(), NewShop(db), locker, 64, 300*time.Millisecond)
		require.NoError(t, err)
		t.Logf("alone %.0f orders/s, p99 %v; merged %.0f orders/s, p99 %v", alone.Rate(), alone.P99, merged.Rate(), merged.P99)
		for _, r := range []Result{alone, merged} {
			require.Positive(t, r.Orders)
			require.Zero(t, r.Oversold)
		}
	})
}

// Of a batch whose transaction fails nobody has bought, and each buyer hears of it; when
// the pieces are gone, nobody else buys.
func TestBatchIsAllOrNone(t *testing.T) {
	each(t, func(t *testing.T, db *sql.DB) {
		locker := lock.New(memlock.New(), nil)
		defer func() { require.NoError(t, locker.Close(t.Context())) }()
		crash, shop := errors.New("the power failed"), NewShop(db)
		require.NoError(t, shop.Migrate(t.Context()))
		require.NoError(t, shop.Offer(t.Context(), 2, 30))
		var commits atomic.Int32
		shop.commit = func(tx *sql.Tx) error {
			if commits.Add(1)%2 == 1 {
				return crash
			}
			return tx.Commit()
		}
		guarded := NewShopWithLock(shop, locker)
		var sold, crashed atomic.Int32
		var all sync.WaitGroup
		for buyer := range int64(200) {
			all.Go(func() {
				switch ok, err := guarded.BuyOne(t.Context(), 2, buyer); {
				case errors.Is(err, crash):
					crashed.Add(1)
				case err != nil:
					t.Error(err)
				case ok:
					sold.Add(1)
				}
			})
		}
		all.Wait()
		var orders int32
		require.NoError(t, db.QueryRowContext(t.Context(), "SELECT count(*) FROM flash_orders WHERE item = 2").Scan(&orders))
		require.Equal(t, sold.Load(), orders)
		require.LessOrEqual(t, orders, int32(30))
		require.Positive(t, crashed.Load())
	})
}
