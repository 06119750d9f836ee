package failover_test

import (
	"context"
	"fmt"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/failover"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/driver"
)

// The primary grants, and the standby takes over when it is away. In a service they are
// servers, such as redislock.New(client). A first start waits for the longest lease.
func Example() {
	b := failover.New(memlock.New(), []driver.Backend{memlock.New()}, failover.Options{
		LongestTTL: 1600 * time.Millisecond, Silence: time.Second, Probe: 50 * time.Millisecond, // short, for an example
	})
	locker := lock.New(b, nil)
	defer locker.Close(context.Background())
	err := locker.Do(context.Background(), &lock.Policy{TTL: 1500 * time.Millisecond}, "order:42", func(ctx context.Context) error {
		_, ok := lock.Token(ctx)
		fmt.Println("inside, with a token:", ok)
		return nil
	})
	fmt.Println(err)
	// Output:
	// inside, with a token: true
	// <nil>
}
