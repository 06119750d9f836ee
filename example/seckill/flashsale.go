package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/lockgen/lockgen/example/seckill/flash"
	lock "github.com/lockgen/lockgen/runtime"
)

// flashBuyers is how many buyers there are at once in the sale that shows merge.
const flashBuyers = 64

// writeFlashSale sells one item from the database that also has the locks. It writes the cost of an
// order in a transaction of its own, and in one with all waiting orders.
func (b sqlBackend) writeFlashSale(ctx context.Context, source string, w io.Writer) (err error) {
	db, err := sql.Open(b.driver, source)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxIdleConns(flashBuyers)
	locks, closeLocks, err := b.open(source)
	if err != nil {
		return err
	}
	locker := lock.New(locks, nil)
	shop := flash.NewShop(db)
	shop.Also = flash.Millisecond[b.driver]
	alone, merged, err := flash.Compare(ctx, shop, locker, flashBuyers, time.Second)
	if err = errors.Join(err, locker.Close(ctx), closeLocks()); err != nil {
		return fmt.Errorf("the flash sale in the database: %w", err)
	}
	_, err = fmt.Fprintf(w, `
%d buyers of one item, with stock and orders in %s, where each transaction runs %s as well:
%-22s  %12s  %12s
%-22s  %10.0f/s  %10.0f/s
%-22s  %12v  %12v
%-22s  %12d  %12d
`, flashBuyers, b.title, shop.Also, "", "one by one", "merge=64",
		"orders", alone.Rate(), merged.Rate(),
		"p99 wait", alone.P99.Round(time.Microsecond*100), merged.P99.Round(time.Microsecond*100),
		"oversold", alone.Oversold, merged.Oversold)
	return err
}
