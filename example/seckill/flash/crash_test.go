package flash

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
)

// sellerEnv makes the test binary a process that sells. Its value has the driver, the data source,
// the item, and where the process stops in its second batch.
const sellerEnv = "FLASH_SELLER"

func TestMain(m *testing.M) {
	if order := os.Getenv(sellerEnv); order != "" {
		sell(strings.Split(order, " "))
	}
	os.Exit(m.Run())
}

const (
	crashBuyers = 64
	crashPieces = 100
)

// sell sells to the first buyer and then to all others. In its second batch it prints how many
// orders there are in the transaction, and hangs.
func sell(order []string) {
	db, err := sql.Open(order[0], order[1])
	if err != nil {
		panic(err)
	}
	item, err := strconv.ParseInt(order[2], 10, 64)
	if err != nil {
		panic(err)
	}
	shop, batches, begun := NewShop(db), 0, make(chan struct{})
	var come sync.WaitGroup // the other buyers, who wait for a batch
	come.Add(crashBuyers - 1)
	shop.commit = func(tx *sql.Tx) error {
		if batches++; batches == 1 {
			close(begun)
			come.Wait()
			return tx.Commit()
		}
		var orders int
		if err := tx.QueryRow(fmt.Sprintf("SELECT count(*) FROM flash_orders WHERE item = %d", item)).Scan(&orders); err != nil {
			panic(err)
		}
		if order[3] == "after" {
			if err := tx.Commit(); err != nil {
				panic(err)
			}
		}
		fmt.Println(orders)
		select {}
	}
	guarded := NewShopWithLock(shop, lock.New(memlock.New(), nil))
	var all sync.WaitGroup
	for buyer := range int64(crashBuyers) {
		all.Go(func() {
			ctx := context.Background()
			if buyer > 0 {
				<-begun // the first buyer has a batch of its own
				ctx = &waitedFor{Context: ctx, begins: sync.OnceFunc(come.Done)}
			}
			_, _ = guarded.BuyOne(ctx, item, buyer)
		})
	}
	all.Wait()
	panic("it did not stop")
}

// waitedFor is a context that reports when a call begins to wait for its end. A merged call does so
// once it is in the queue.
type waitedFor struct {
	context.Context
	begins func()
}

// Done implements [context.Context].
func (w *waitedFor) Done() <-chan struct{} {
	w.begins()
	return w.Context.Done()
}

// A process is killed in the middle of a batch. All orders of the batch are in the database, or
// none, and another process sells the rest.
func TestProcessKilledInABatch(t *testing.T) {
	t.Parallel()
	item := int64(10)
	for driver, of := range databases {
		for _, where := range []string{"before", "after", "inside"} { // before and after the commit, and between statements
			item++
			t.Run(driver+"/"+where, func(t *testing.T) { killedInABatch(t, driver, of, item, where) })
		}
	}
}

func killedInABatch(t *testing.T, driver string, of database, item int64, where string) {
	db := of.open(t)
	shop := NewShop(db)
	require.NoError(t, shop.Migrate(t.Context()))
	require.NoError(t, shop.Offer(t.Context(), item, crashPieces))
	count := func() (orders, stock int) {
		// FOR UPDATE waits until the killed process's transaction is over.
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer func() { require.NoError(t, tx.Rollback()) }()
		require.NoError(t, tx.QueryRow(fmt.Sprintf("SELECT stock FROM flash_items WHERE item = %d FOR UPDATE", item)).Scan(&stock))
		require.NoError(t, tx.QueryRow(fmt.Sprintf("SELECT count(*) FROM flash_orders WHERE item = %d", item)).Scan(&orders))
		return orders, stock
	}
	var barrier *sql.Tx // the batch's orders can't pass it once its pieces are taken
	if where == "inside" {
		var err error
		barrier, err = db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		_, err = barrier.Exec(fmt.Sprintf("INSERT INTO flash_orders (item, buyer) VALUES (%d, 1)", item))
		require.NoError(t, err)
	}
	inBatch := killSeller(t, driver, of(t), item, where, db)
	if barrier != nil {
		require.NoError(t, barrier.Rollback())
	}
	orders, stock := count()
	t.Logf("%d orders in the batch and before, %d in the database", inBatch, orders)
	require.Equal(t, crashPieces, stock+orders)
	switch where {
	case "before":
		require.Greater(t, inBatch, 2)
		require.Equal(t, 1, orders)
	case "after":
		require.Greater(t, inBatch, 2)
		require.Equal(t, inBatch, orders)
	default:
		require.Equal(t, 1, orders)
	}
	locker := lock.New(memlock.New(), nil)
	defer func() { require.NoError(t, locker.Close(context.Background())) }()
	guarded := NewShopWithLock(shop, locker)
	var all sync.WaitGroup
	for buyer := range int64(2 * crashPieces) {
		all.Go(func() {
			_, err := guarded.BuyOne(t.Context(), item, 1000+buyer)
			require.NoError(t, err)
		})
	}
	all.Wait()
	orders, stock = count()
	require.Equal(t, crashPieces, orders)
	require.Zero(t, stock)
}

// killSeller kills a selling process where it stops, and returns how many orders it saw in its
// transaction.
func killSeller(t *testing.T, driver, source string, item int64, where string, db *sql.DB) (orders int) {
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %d %s", sellerEnv, driver, source, item, where))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer func() {
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait()
	}()
	if where == "inside" {
		waitUntilBlocked(t, db, item)
		return 0
	}
	lines := bufio.NewScanner(out)
	require.True(t, lines.Scan(), "the process says nothing")
	orders, err = strconv.Atoi(lines.Text())
	require.NoError(t, err)
	return orders
}

// waitUntilBlocked waits until one order of item exists, and another transaction has taken pieces
// and has not ended for a while.
func waitUntilBlocked(t *testing.T, db *sql.DB, item int64) {
	for orders := 0; orders == 0; time.Sleep(20 * time.Millisecond) {
		text := fmt.Sprintf("SELECT count(*) FROM flash_orders WHERE item = %d", item)
		require.NoError(t, db.QueryRowContext(t.Context(), text).Scan(&orders))
	}
	for blocked := 0; blocked < 20; time.Sleep(20 * time.Millisecond) {
		var stock int
		err := db.QueryRowContext(t.Context(), fmt.Sprintf("SELECT stock FROM flash_items WHERE item = %d FOR UPDATE NOWAIT", item)).Scan(&stock)
		if err != nil {
			blocked++ // PostgreSQL and MariaDB refuse locked rows
		} else {
			blocked = 0
		}
		require.NoError(t, t.Context().Err())
	}
}
