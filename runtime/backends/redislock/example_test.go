package redislock_test

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/redislock"
)

func Example() {
	addr, stop, err := testserver.Example(testserver.Redis)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stop()

	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	locker := lock.New(redislock.New(client), nil)
	defer locker.Close(context.Background())

	policy := &lock.Policy{TTL: 30 * time.Second, Wait: 5 * time.Second}
	err = locker.Do(context.Background(), policy, "example:report:daily", func(ctx context.Context) error {
		token, ok := lock.Token(ctx)
		fmt.Println("inside, with a fencing token:", ok && token > 0)
		return lock.Check(ctx)
	})
	fmt.Println(err)
	// Output:
	// inside, with a fencing token: true
	// <nil>
}
