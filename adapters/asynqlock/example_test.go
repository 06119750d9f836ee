package asynqlock_test

import (
	"context"
	"fmt"

	"github.com/hibiken/asynq"

	"github.com/lockgen/lockgen/adapters/asynqlock"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
)

func Example() {
	locks := lock.New(memlock.New(), nil) // or redislock.New(client), for all workers
	defer locks.Close(context.Background())

	mux := asynq.NewServeMux()
	mux.Use(asynqlock.Middleware(locks, &lock.Policy{Try: true}, func(task *asynq.Task) (string, error) {
		return "account:" + lock.EncodeKey(string(task.Payload())), nil
	}))
	mux.HandleFunc("invoice", func(ctx context.Context, task *asynq.Task) error {
		fmt.Printf("invoice for account %s\n", task.Payload())
		return lock.Check(ctx)
	})

	// asynq.NewServer(redis, asynq.Config{IsFailure: asynqlock.IsFailure}).Run(mux) calls
	// this for each task:
	err := mux.ProcessTask(context.Background(), asynq.NewTask("invoice", []byte("42")))
	fmt.Println(err)
	// Output:
	// invoice for account 42
	// <nil>
}
