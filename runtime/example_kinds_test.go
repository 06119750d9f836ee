package lock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
)

// A job runs once for each tick of its schedule, in whichever process comes first. Complete marks
// the tick as done; without it another process would run it again.
func ExampleLocker_AcquireOnce() {
	locker := lock.New(memlock.New(), nil)
	defer locker.Close(context.Background())

	policy := &lock.Policy{Once: true}
	report := func(day string) (err error) {
		ctx, held, err := locker.AcquireOnce(context.Background(), policy, "report", day)
		if err != nil {
			return err
		}
		defer held.Release(&err)
		fmt.Println("writes the report of", day)
		if err := ctx.Err(); err != nil {
			return err
		}
		held.Complete()
		return nil
	}
	fmt.Println(report("2026-11-24"))
	fmt.Println(errors.Is(report("2026-11-24"), lock.ErrDone))
	// Output:
	// writes the report of 2026-11-24
	// <nil>
	// true
}

// The function runs in one process, for as long as that process leads. Others may ask who leads.
func ExampleLocker_Lead() {
	locker := lock.New(memlock.New(), &lock.Options{Name: "worker 1"})
	defer locker.Close(context.Background())

	policy := &lock.Policy{Leader: true}
	err := locker.Lead(context.Background(), policy, "billing", func(ctx context.Context) error {
		leader, err := locker.Leader(ctx, policy, "billing")
		if err != nil {
			return err
		}
		fmt.Println(leader.Name, "leads")
		return nil // resigns; after an error it would campaign again
	})
	fmt.Println(err)
	// Output:
	// worker 1 leads
	// <nil>
}

// Calls that hold a lock wait until another call has changed something.
func ExampleNewCond() {
	locker := lock.New(memlock.New(), nil)
	defer locker.Close(context.Background())

	filled := lock.NewCond(locker, "basket")
	apples := 0 // in a service: in a database
	var eater sync.WaitGroup
	eater.Go(func() {
		err := locker.Do(context.Background(), nil, "basket", func(ctx context.Context) error {
			for apples == 0 {
				if err := filled.Wait(ctx); err != nil { // gives up the lock meanwhile
					return err
				}
			}
			apples--
			return nil
		})
		fmt.Println("eaten:", err)
	})
	err := locker.Do(context.Background(), nil, "basket", func(ctx context.Context) error {
		apples++
		return filled.Signal(ctx)
	})
	fmt.Println("filled:", err)
	eater.Wait()
	fmt.Println("left:", apples)
	// Unordered output:
	// filled: <nil>
	// eaten: <nil>
	// left: 0
}

// Calls that wait for one key share a lock and one call of the function, for example one
// transaction for many orders. An EachError has the result of each request.
func ExampleNewMerger() {
	locker := lock.New(memlock.New(), nil)
	defer locker.Close(context.Background())

	stock := 2
	buy := func(_ context.Context, wanted []int) (left []int, err error) {
		errs := make(lock.EachError, len(wanted))
		for i, n := range wanted {
			if n > stock {
				errs[i] = errors.New("sold out")
			} else {
				stock -= n
			}
			left = append(left, stock)
		}
		return left, errs
	}
	merger := lock.NewMerger[int, int](locker, &lock.Policy{}, 64)
	for _, n := range []int{2, 1} {
		left, err := merger.Do(context.Background(), "item:7", n, buy)
		fmt.Println(left, err)
	}
	// Output:
	// 0 <nil>
	// 0 sold out
}
