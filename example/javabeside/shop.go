package main

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:generate go run ../../cmd/lockgen

// shop sells pieces whose number is in Redis.
type shop struct{ client *redis.Client }

// Sell sells one piece of an item, if one is left. java/src/main/java/shop/Shop.java does the
// same on the same keys.
//
//lock:key="shop:item:<id>" ttl=10s
func (s *shop) Sell(ctx context.Context, id int64) (sold bool, err error) {
	stock := stockKey(id)
	left, err := s.client.Get(ctx, stock).Int64()
	if err != nil || left == 0 {
		return false, err
	}
	time.Sleep(time.Millisecond) // as long as an order takes to be written
	return true, s.client.Set(ctx, stock, left-1, 0).Err()
}
