package consullock_test

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/consullock"
)

func Example() {
	addr, stop, err := testserver.Example(testserver.Consul)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stop()

	config := api.DefaultConfig()
	config.Address = addr
	defer config.Transport.CloseIdleConnections()
	client, err := api.NewClient(config)
	if err != nil {
		fmt.Println(err)
		return
	}
	locker := lock.New(consullock.New(client), nil)
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
