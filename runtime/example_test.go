package lock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
)

// Do runs a function under a lock. The function uses the context that it is given.
func ExampleLocker_Do() {
	locker := lock.New(memlock.New(), nil) // in a service: redislock.New(client)
	defer locker.Close(context.Background())

	policy := &lock.Policy{TTL: time.Minute, Wait: 2 * time.Second}
	err := locker.Do(context.Background(), policy, "report:daily", func(ctx context.Context) error {
		fmt.Println("inside:", lock.Owns(ctx, "report:daily"))
		return lock.Check(ctx) // nil as long as the lock is held
	})
	fmt.Println(err)
	// Output:
	// inside: true
	// <nil>
}

// A generated wrapper calls Acquire and Release. The deferred Release adds ErrLost to the method's
// own error if the lock was lost meanwhile.
func ExampleLocker_Acquire() {
	locker := lock.New(memlock.New(), nil)
	defer locker.Close(context.Background())

	sell := func(ctx context.Context, id int) (err error) {
		ctx, held, err := locker.Acquire(ctx, &lock.Policy{Try: true}, fmt.Sprintf("voucher:%d", id))
		if err != nil {
			return err
		}
		defer held.Release(&err)
		fmt.Println("sold one of", held.Key())
		if id == 1 {
			return locker.Do(context.Background(), &lock.Policy{Try: true}, held.Key(), func(context.Context) error { return nil })
		}
		return ctx.Err()
	}
	fmt.Println(sell(context.Background(), 7))
	err := sell(context.Background(), 1)
	fmt.Println(errors.Is(err, lock.ErrNotAcquired), err)
	// Output:
	// sold one of voucher:7
	// <nil>
	// sold one of voucher:1
	// true lock: acquire voucher:1: not acquired: held by another call of this process
}

// Unlock releases by hand. AcquireAll takes locks that are held together in one order in all
// processes.
func ExampleLocker_AcquireAll() {
	locker := lock.New(memlock.New(), nil)
	defer locker.Close(context.Background())

	ctx, held, err := locker.AcquireAll(context.Background(), lock.Request{Key: "account:2"}, lock.Request{Key: "account:1"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(lock.Owns(ctx, "account:1"), lock.Owns(ctx, "account:2"))
	fmt.Println(held.Unlock())
	// Output:
	// true true
	// <nil>
}

// A fencing token rises with each hold of a key, over all processes.
func ExampleToken() {
	locker := lock.New(memlock.New(), nil)
	defer locker.Close(context.Background())

	var last uint64
	for range 3 {
		_ = locker.Do(context.Background(), nil, "order:1", func(ctx context.Context) error {
			token, _ := lock.Token(ctx)
			fmt.Println("rises:", token > last) // UPDATE … SET token = ? WHERE id = 1 AND token < ?
			last = token
			return nil
		})
	}
	// Output:
	// rises: true
	// rises: true
	// rises: true
}

// Lost locks, and engines that can't be reached, are logged as warnings.
func ExampleNewLogObserver() {
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == "duration" {
				return slog.Attr{}
			}
			return a
		},
	}))
	locker := lock.New(memlock.New(), &lock.Options{Observer: lock.NewLogObserver(logger)})
	defer locker.Close(context.Background())

	_ = locker.Do(context.Background(), &lock.Policy{Method: "Shop.Sell"}, "k", func(context.Context) error {
		_, _, err := locker.Acquire(context.Background(), &lock.Policy{Method: "Shop.Count", Try: true}, "k")
		return err
	})
	// Output:
	// level=INFO msg="lock rejected" method=Shop.Count key=k error="lock: acquire k (Shop.Count): not acquired: held by another call of this process"
}

// A service calls another service while it holds a lock, and the callee works inside that lock. The
// two share a secret of 32 random bytes.
func ExampleInject() {
	secret := []byte("32 random bytes from your vault.")
	signer, _ := lock.NewHMACSigner("2026-11", secret)
	verifier, _ := lock.NewHMACVerifier("2026-11", secret)
	keyring, _ := lock.NewKeyring("stock", nil, verifier)

	locks := memlock.New()
	orders, stock := lock.New(locks, nil), lock.New(locks, nil) // in two processes
	defer orders.Close(context.Background())
	defer stock.Close(context.Background())

	serve := func(ctx context.Context, header map[string][]string) (err error) { // in the callee
		ctx, held, err := lock.Extract(ctx, lock.HeaderCarrier(header), keyring)
		if err != nil {
			return err
		}
		defer held.Release(&err)
		return stock.Do(ctx, &lock.Policy{Reentrant: true}, "voucher:7", func(ctx context.Context) error {
			fmt.Println("the callee is inside:", lock.Owns(ctx, "voucher:7"))
			return lock.Check(ctx)
		})
	}
	err := orders.Do(context.Background(), nil, "voucher:7", func(ctx context.Context) error {
		header := map[string][]string{} // an http.Header
		if err := lock.Inject(ctx, lock.HeaderCarrier(header), signer, "stock"); err != nil {
			return err
		}
		return serve(context.Background(), header)
	})
	fmt.Println(err)
	// Output:
	// the callee is inside: true
	// <nil>
}
