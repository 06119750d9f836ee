package sharded_test

import (
	"context"
	"fmt"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/backends/sharded"
	"github.com/lockgen/lockgen/runtime/driver"
)

// Each key has one of two engines. In a service they are servers, such as
// redislock.New(client). A first start waits for the longest lease: Ping says when it is over.
func Example() {
	b := sharded.New(map[string]driver.Backend{"one": memlock.New(), "two": memlock.New()}, sharded.Options{
		LongestTTL: 1600 * time.Millisecond, Silence: time.Second, Probe: 50 * time.Millisecond, // short, for an example
	})
	locker := lock.New(b, nil)
	defer locker.Close(context.Background())
	for range time.Tick(20 * time.Millisecond) {
		if locker.Ping(context.Background()) == nil {
			break
		}
	}
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
