//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// workerArg as the first argument makes this program a worker.
const workerArg = "worker-of-the-lesson"

// worker is one process of the shop. Its stock is also in Redis: "stock" is how many pieces are
// left, and "pieces" lists the numbers of those that were sold.
type worker struct {
	client *redis.Client
	id     string
	struck bool // a fault has struck it in the present sale
}

// work sells until nothing is left, or until the parent has ended.
func work(name, addr string, number int) error {
	client := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1})
	defer client.Close()
	w := &worker{client: client, id: strconv.Itoa(number)}
	var run func(context.Context, section) error
	for _, l := range locks {
		if l.name == name {
			run = l.open(w)
		}
	}
	if run == nil {
		return fmt.Errorf("no lock is named %q", name)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute) // if the parent has ended
	defer cancel()
	if err := client.Incr(ctx, "ready").Err(); err != nil {
		return err
	}
	for {
		err := run(ctx, w.sell)
		if w.struck {
			w.struck = false
			if err := client.Set(ctx, "over", w.id, 0).Err(); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, errSoldOut):
			return nil
		case os.Getppid() == 1:
			return errors.New("the parent is gone")
		case err != nil:
			return err
		}
	}
}

var errSoldOut = errors.New("sold out")

// sell sells one piece: it reads how many are left, and writes one less.
func (w *worker) sell(write func(left int) error) error {
	ctx := context.Background()
	left, err := w.client.Get(ctx, "stock").Int()
	if err != nil {
		return err
	}
	if left <= 0 {
		return errSoldOut
	}
	w.at("inside")
	time.Sleep(2 * time.Millisecond) // the payment
	if err := write(left - 1); err != nil {
		return err
	}
	return w.client.RPush(ctx, "pieces", left).Err()
}

// write is how a lock without a token writes.
func (w *worker) write(left int) error {
	return w.client.Set(context.Background(), "stock", left, 0).Err()
}

// at is a point at which a fault may strike. If the parent has asked for a fault here, the worker
// reports itself and waits until the parent lets it continue.
func (w *worker) at(point string) {
	ctx := context.Background()
	if struck, err := take.Run(ctx, w.client, []string{"strike", "struck"}, point, w.id).Int(); err != nil || struck == 0 {
		return
	}
	for w.client.Exists(ctx, "struck").Val() == 1 {
		time.Sleep(2 * time.Millisecond)
	}
	w.struck = true
}

// take gives the fault at a point to the first worker that reaches the point.
var take = redis.NewScript(`
if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('del', KEYS[1])
redis.call('set', KEYS[2], ARGV[2])
return 1`)
