package quorum_test

import (
	"context"
	"fmt"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/backends/quorum"
	"github.com/lockgen/lockgen/runtime/driver"
)

// A majority of three engines decides. In a service they are servers, such as
// redislock.New(client).
func Example() {
	b := quorum.New(map[string]driver.Backend{
		"paris": memlock.New(), "lyon": memlock.New(), "nantes": memlock.New(),
	})
	locker := lock.New(b, nil)
	defer locker.Close(context.Background())
	err := locker.Do(context.Background(), nil, "order:42", func(ctx context.Context) error {
		_, ok := lock.Token(ctx)
		fmt.Println("inside, with a token:", ok)
		return nil
	})
	fmt.Println(err)
	// Output:
	// inside, with a token: true
	// <nil>
}
