package zklock_test

import (
	"context"
	"fmt"
	"time"

	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/zklock"
)

func Example() {
	addr, stop, err := testserver.Example(testserver.ZooKeeper)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stop()

	locker := lock.New(zklock.New([]string{addr}), nil)
	defer locker.Close(context.Background())

	policy := &lock.Policy{TTL: 10 * time.Second, Wait: 5 * time.Second}
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
