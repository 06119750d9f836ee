package otellock_test

import (
	"context"
	"log"

	"github.com/lockgen/lockgen/adapters/otellock"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
)

// The example uses the global providers of package otel, which the service has set.
func ExampleNew() {
	observer, err := otellock.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	locker := lock.New(memlock.New(), &lock.Options{Observer: observer})
	defer locker.Close(context.Background())
	watching, err := observer.Watch(locker)
	if err != nil {
		log.Fatal(err)
	}
	defer watching.Unregister()
	// Output:
}
