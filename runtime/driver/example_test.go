package driver_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/driver"
)

// A Backend makes one attempt, and reports how long another owner's lease lasts.
func ExampleBackend() {
	ctx, b := context.Background(), memlock.New()
	defer b.Close()
	attempt := func(n int) (driver.Lease, error) {
		return b.Acquire(ctx, &driver.Acquisition{
			Key: "order:42", ID: fmt.Sprintf("6c1a5ad2-7f0b-8c57-9e0e-6a3a0a9d2f11:%d", n), TTL: time.Hour, Tokens: 1,
		})
	}
	lease, err := attempt(1)
	fmt.Println("taken:", err == nil)
	_, err = attempt(2)
	var held *driver.HeldError
	fmt.Println("held:", errors.As(err, &held) && held.RetryAfter > 59*time.Minute)
	first, _ := lease.Tokens()
	fmt.Println("released:", lease.Release(ctx, first) == nil)
	// Output:
	// taken: true
	// held: true
	// released: true
}
