package cronlock_test

import (
	"context"
	"fmt"

	"github.com/robfig/cron/v3"

	"github.com/lockgen/lockgen/adapters/cronlock"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
)

func ExampleExclusive() {
	locks := lock.New(memlock.New(), nil) // or redislock.New(client), for all machines
	defer locks.Close(context.Background())

	exclusive := cronlock.Exclusive(locks, &lock.Policy{Try: true}, "report", nil)
	c := cron.New(cron.WithSeconds())
	c.Schedule(cron.Every(1), cron.NewChain(exclusive).Then(cron.FuncJob(func() {
		fmt.Println("reported")
	})))
	c.Entries()[0].WrappedJob.Run() // as c.Start would do, a second later
	// Output:
	// reported
}

// At each tick one process makes the report. The other processes skip it.
func ExampleAddOnce() {
	locks := lock.New(memlock.New(), nil) // or redislock.New(client), for all machines
	defer locks.Close(context.Background())

	c := cron.New()
	report := func(ctx context.Context) error {
		token, _ := lock.Token(ctx)
		fmt.Println("store the report with fencing token", token)
		return lock.Check(ctx)
	}
	if _, err := cronlock.AddOnce(c, "CRON_TZ=UTC 0 2 * * *", locks, nil, "report", report, nil); err != nil {
		fmt.Println(err)
	}
	_, err := cronlock.AddOnce(c, "@every 24h", locks, nil, "report", report, nil)
	fmt.Println(err)
	// Output:
	// lock: policy report: invalid: "@every 24h" counts from the start of this process, so no other has its ticks
}
