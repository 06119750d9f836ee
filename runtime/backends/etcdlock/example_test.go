package etcdlock_test

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/etcdlock"
)

func Example() {
	addr, stop, err := testserver.Example(testserver.Etcd)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stop()

	client, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	locker := lock.New(etcdlock.New(client), nil)
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
