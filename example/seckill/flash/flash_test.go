package flash

import (
	"context"
	"database/sql"
	"errors"
	"strings"
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
	"github.com/lockgen/lockgen/runtime/backends/sqllock"
)

// database returns the data source name of a real database.
type database func(t testing.TB) string

// databases are the databases by the name of their driver.
var databases = map[string]database{
	"mysql": func(t testing.TB) string { return "root@tcp(" + testserver.MySQL(t) + ")/flash_test" },
	"pgx": func(t testing.TB) string {
		return "postgres://lockgen@" + testserver.Postgres(t) + "/postgres?sslmode=disable"
	},
}

func (d database) open(t testing.TB) *sql.DB {
	source, driver := d(t), "pgx"
	if bare, ok := strings.CutSuffix(source, "flash_test"); ok {
		driver = "mysql"
		admin, err := sql.Open(driver, bare)
		require.NoError(t, err)
		_, err = admin.ExecContext(t.Context(), "CREATE DATABASE IF NOT EXISTS flash_test")
		require.NoError(t, err)
		require.NoError(t, admin.Close())
	}
	db, err := sql.Open(driver, source)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

func each(t *testing.T, run func(t *testing.T, db *sql.DB)) {
	for driver, of := range databases {
		t.Run(driver, func(t *testing.T) { run(t, of.open(t)) })
	}
}

// Every confirmed order is in the database, and no other, with and without merge.
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
		alone, merged, err = Compare(t.Context(), NewShop(db), locker, 8, 0) // the time is over before any buyer has begun
		require.NoError(t, err)
		require.Equal(t, []int{8, 8}, []int{alone.Orders, merged.Orders})
	})
}

// If the transaction of a batch fails, no buyer of the batch has bought, and each of them gets the
// error. When the pieces are sold out, nobody else buys.
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

// BenchmarkMerge has 64 buyers of one item, each in a transaction of its own, or up to 64 in one.
// The locks are in the database too. In "millisecond" a statement takes the database 1 ms in each
// transaction. In "durable" there is no such statement, but each commit waits for the disk.
func BenchmarkMerge(b *testing.B) {
	for driver, of := range databases {
		b.Run(driver+"/millisecond", func(b *testing.B) { benchmarkMerge(b, of, Millisecond[driver]) })
	}
	b.Run("mysql/durable", func(b *testing.B) {
		server := testserver.StartMySQL(b, "--innodb-flush-log-at-trx-commit=1", "--log-bin", "--sync-binlog=1")
		benchmarkMerge(b, func(testing.TB) string { return "root@tcp(" + server.Addr() + ")/flash_test" }, "")
	})
	b.Run("pgx/durable", func(b *testing.B) {
		server := testserver.StartPostgres(b, "-c", "fsync=on", "-c", "synchronous_commit=on", "-c", "full_page_writes=on")
		benchmarkMerge(b, func(testing.TB) string {
			return "postgres://lockgen@" + server.Addr() + "/postgres?sslmode=disable"
		}, "")
	})
}

func benchmarkMerge(b *testing.B, of database, also string) {
	db := of.open(b)
	db.SetMaxIdleConns(64)
	locks, err := sqllock.New(db)
	require.NoError(b, err)
	require.NoError(b, locks.Migrate(b.Context()))
	locker, shop := lock.New(locks, nil), NewShop(db)
	defer func() { require.NoError(b, locker.Close(context.Background())) }()
	shop.Also = also
	for b.Loop() {
		alone, merged, err := Compare(b.Context(), shop, locker, 64, time.Second)
		require.NoError(b, err)
		require.Zero(b, alone.Oversold+merged.Oversold)
		b.ReportMetric(alone.Rate(), "alone/s")
		b.ReportMetric(merged.Rate(), "merged/s")
		b.ReportMetric(merged.Rate()/alone.Rate(), "times-the-orders")
		b.ReportMetric(float64(merged.P99)/float64(alone.P99), "of-the-p99")
	}
}
