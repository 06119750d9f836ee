package memlock_test

import (
	"context"
	"fmt"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
)

// Lockers that share a Backend exclude each other as processes do on one engine.
func Example() {
	locks := memlock.New()
	one, other := lock.New(locks, nil), lock.New(locks, nil)
	defer one.Close(context.Background())
	defer other.Close(context.Background())

	err := one.Do(context.Background(), nil, "report", func(context.Context) error {
		return other.Do(context.Background(), &lock.Policy{Try: true}, "report", func(context.Context) error { return nil })
	})
	fmt.Println(err)
	// Output:
	// lock: acquire report: not acquired: held by another owner
}
