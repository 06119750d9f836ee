package locktest_test

import (
	"context"
	"errors"
	"fmt"
	"sync"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/locktest"
)

// report is a job that writes its parts while it holds a lock. It calls Locker.Do by hand; the
// wrappers that lockgen generates do the same.
type report struct {
	locker *lock.Locker
	write  func(ctx context.Context, part int) error
}

func (r *report) Run(ctx context.Context) error {
	return r.locker.Do(ctx, nil, "report:daily", func(ctx context.Context) error {
		for part := range 5 {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err := r.write(ctx, part); err != nil {
				return err
			}
		}
		return nil
	})
}

// A service must stop writing when its lock is lost, because another process may hold it. Here the
// lock is lost while the third part is being written.
func Example_aServiceStopsWhenItsLockIsLost() {
	engine := locktest.New(nil) // in a test: locktest.New(t)
	locker := lock.New(engine, nil)
	defer locker.Close(context.Background())

	job := &report{locker: locker, write: func(_ context.Context, part int) error {
		fmt.Println("write part", part)
		if part == 2 {
			engine.Expire("report:daily")
		}
		return nil
	}}
	err := job.Run(context.Background())
	fmt.Println("lost:", errors.Is(err, lock.ErrLost))
	// Output:
	// write part 0
	// write part 1
	// write part 2
	// lost: true
}

// table is a store that accepts a write only with a token that is not lower than those it has seen,
// as SQL does with WHERE token <= ?.
type table struct {
	mu    sync.Mutex
	token uint64
	value string
}

var errOldToken = errors.New("refused: an old token")

func (t *table) Set(token uint64, value string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if token < t.token {
		return errOldToken
	}
	t.token, t.value = token, value
	return nil
}

// A process that was paused does not know that another one has its lock now. Its store must refuse
// what it writes then, by the fencing token.
func Example_aStoreRefusesAnOldToken() {
	engine := locktest.New(nil)
	locker := lock.New(engine, nil)
	defer locker.Close(context.Background())
	var stock table

	err := locker.Do(context.Background(), nil, "stock:42", func(ctx context.Context) error {
		other := engine.HeldByOther("stock:42") // while this method sleeps
		defer other.Release()
		if err := stock.Set(other.Token, "theirs"); err != nil {
			return err
		}
		fmt.Println("does it know?", lock.Check(ctx) != nil)

		token, _ := lock.Token(ctx)
		return stock.Set(token, "ours")
	})
	fmt.Println("refused:", errors.Is(err, errOldToken))
	fmt.Println("lost:", errors.Is(err, lock.ErrLost))
	fmt.Println("value:", stock.value)
	// Output:
	// does it know? false
	// refused: true
	// lost: true
	// value: theirs
}

// The user gets a message while the lock is busy, and the next try succeeds.
func Example_aBusyKey() {
	engine := locktest.New(nil)
	locker := lock.New(engine, nil)
	defer locker.Close(context.Background())
	buy := func() string {
		err := locker.Do(context.Background(), &lock.Policy{Try: true}, "shop:42", func(context.Context) error {
			return nil
		})
		switch {
		case errors.Is(err, lock.ErrNotAcquired):
			return "please try again"
		case err != nil:
			return "sorry: " + err.Error()
		}
		return "thank you"
	}

	other := engine.HeldByOther("shop:42")
	fmt.Println(buy())
	other.Release()
	fmt.Println(buy())
	// Output:
	// please try again
	// thank you
}

// The engine can't be reached, and is back in time: a held lock is renewed again before its lease
// ends.
func Example_theEngineIsAwayForAMoment() {
	engine := locktest.New(nil)
	locker := lock.New(engine, nil)
	defer locker.Close(context.Background())
	defer engine.Heal() // Close waits for what could not be released

	ctx, held, err := locker.Acquire(context.Background(), nil, "shop:42")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer held.Release(nil)
	engine.Fail(nil)
	_, _, err = locker.Acquire(context.Background(), nil, "shop:43")
	fmt.Println("unavailable:", errors.Is(err, lock.ErrUnavailable))
	engine.Advance(lock.DefaultTTL / 2)
	fmt.Println("still held:", lock.Check(ctx) == nil)
	engine.Heal()
	engine.Advance(10 * lock.DefaultTTL)
	fmt.Println("still held:", lock.Check(ctx) == nil)
	engine.Fail(nil)
	engine.Advance(lock.DefaultTTL)
	fmt.Println("lost:", errors.Is(context.Cause(ctx), lock.ErrLost))
	// Output:
	// unavailable: true
	// still held: true
	// still held: true
	// lost: true
}
