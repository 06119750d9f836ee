package flash

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
)

// Result is the result of one sale.
type Result struct {
	Orders   int           // how many orders were sold
	Took     time.Duration // how long the whole sale took
	P99      time.Duration // the time of a buyer from the call to the answer
	Oversold int           // how many orders are too many, or differ from what was confirmed
}

// Rate returns the orders sold per second.
func (r Result) Rate() float64 { return float64(r.Orders) / r.Took.Seconds() }

// Millisecond has, by the name of a driver, a statement that takes its database a millisecond.
var Millisecond = map[string]string{"mysql": "DO SLEEP(0.001)", "pgx": "SELECT pg_sleep(0.001)"}

// Compare runs two sales of the same length with the same number of buyers at once: with a
// transaction for each buyer (alone), and with one for all waiting buyers (merged).
func Compare(ctx context.Context, shop *Shop, locker *lock.Locker, buyers int, d time.Duration) (alone, merged Result, err error) {
	if err := shop.Migrate(ctx); err != nil {
		return alone, merged, err
	}
	guarded := NewShopWithLock(shop, locker)
	alone, err = sale(ctx, shop, guarded.BuyAlone, buyers, d)
	if err == nil {
		merged, err = sale(ctx, shop, guarded.BuyOne, buyers, d)
	}
	return alone, merged, err
}

// sale offers 1,000,000 pieces, more than can be sold in the time. Buyers call buy until d is
// over, each at least once.
func sale(ctx context.Context, shop *Shop, buy func(ctx context.Context, item, buyer int64) (bool, error), buyers int, d time.Duration) (r Result, err error) {
	const item, pieces = 1, 1_000_000
	if err := shop.Offer(ctx, item, pieces); err != nil {
		return r, err
	}
	var number atomic.Int64
	var mu sync.Mutex
	var waits []time.Duration
	var all sync.WaitGroup
	begin := time.Now()
	for range buyers {
		all.Go(func() {
			for stop := false; !stop; { // at least once, whenever the goroutine begins
				called := time.Now()
				sold, failed := buy(ctx, item, number.Add(1))
				mu.Lock()
				if sold {
					r.Orders++
				}
				waits, err = append(waits, time.Since(called)), errors.Join(err, failed)
				stop = err != nil || time.Since(begin) >= d
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if r.Took = time.Since(begin); err != nil {
		return r, err
	}
	slices.Sort(waits)
	r.P99 = waits[len(waits)*99/100]
	var orders, stock int
	if err := shop.db.QueryRowContext(ctx, fmt.Sprintf("SELECT count(*) FROM flash_orders WHERE item = %d", item)).Scan(&orders); err != nil {
		return r, err
	}
	if err := shop.db.QueryRowContext(ctx, fmt.Sprintf("SELECT stock FROM flash_items WHERE item = %d", item)).Scan(&stock); err != nil {
		return r, err
	}
	r.Oversold = max(orders-(pieces-stock), pieces-stock-orders, orders-r.Orders, r.Orders-orders)
	return r, nil
}
