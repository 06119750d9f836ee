// Command tutorial is the first program of docs/tutorial.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/redislock"
)

//go:generate go tool lockgen

var errSoldOut = errors.New("sold out")

// Shop keeps in Redis how many pieces of each item are left.
type Shop struct{ client *redis.Client }

// Buy sells one piece of the item and returns how many are left.
//
//lock:key="shop:item:<id>" ttl=10s wait=2s
func (s *Shop) Buy(ctx context.Context, id int64) (left int, err error) {
	stock := fmt.Sprintf("{stock:%d}", id)
	left, err = s.client.Get(ctx, stock).Int()
	if err != nil {
		return 0, err
	}
	if left == 0 {
		return 0, errSoldOut
	}
	return left - 1, s.client.Set(ctx, stock, left-1, 0).Err()
}

func main() {
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	defer client.Close()
	locker := lock.New(redislock.New(client), nil)
	defer locker.Close(ctx)
	fmt.Println(sell(ctx, client, NewShopWithLock(&Shop{client}, locker)))
}

// sell has 10 buyers, who come at once, buy an item of which there are 3 pieces.
func sell(ctx context.Context, client *redis.Client, shop *ShopWithLock) (sold int64, err error) {
	if err := client.Set(ctx, "{stock:42}", 3, 0).Err(); err != nil {
		return 0, err
	}
	var pieces atomic.Int64
	var buyers sync.WaitGroup
	for range 10 {
		buyers.Go(func() {
			if _, err := shop.Buy(ctx, 42); err == nil {
				pieces.Add(1)
			}
		})
	}
	buyers.Wait()
	return pieces.Load(), nil
}
