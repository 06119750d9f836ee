package gocronlock_test

import (
	"context"
	"fmt"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/lockgen/lockgen/adapters/gocronlock"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
)

func Example() {
	locks := lock.New(memlock.New(), nil) // or redislock.New(client), for all machines
	defer locks.Close(context.Background())

	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(gocronlock.NewLocker(locks, &lock.Policy{Try: true})))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer scheduler.Shutdown()

	ran := make(chan string, 1)
	report := func(day string) { ran <- day }
	_, err = scheduler.NewJob(gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()), gocron.NewTask(report, "Monday"), gocron.WithName("report"))
	if err != nil {
		fmt.Println(err)
		return
	}
	scheduler.Start()
	fmt.Println("reported on", <-ran)
	// Output:
	// reported on Monday
}

func ExampleElector() {
	locks := lock.New(memlock.New(), nil)
	defer locks.Close(context.Background())
	elector := gocronlock.NewElector(context.Background(), locks, &lock.Policy{Leader: true, TTL: 10 * time.Second}, "scheduler")
	defer elector.Close()

	scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer scheduler.Shutdown()

	ran := make(chan struct{}, 1)
	_, err = scheduler.NewJob(gocron.DurationJob(10*time.Millisecond), gocron.NewTask(func() {
		select {
		case ran <- struct{}{}:
		default:
		}
	}))
	if err != nil {
		fmt.Println(err)
		return
	}
	scheduler.Start()
	<-ran
	fmt.Println("the leader runs the job")
	// Output:
	// the leader runs the job
}
