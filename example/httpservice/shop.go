package main

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	lock "github.com/lockgen/lockgen/runtime"
)

//go:generate go tool lockgen

var (
	errSoldOut = errors.New("sold out")
	errUnknown = errors.New("there is no such item")
)

// shop sells items whose stock is in Redis.
type shop struct {
	client *redis.Client
	charge func(ctx context.Context) error // asks for the money
}

// Buy sells one piece of an item and returns how many are left. It reads, charges and
// writes: two at once would sell the same piece.
//
//lock:key="shop:item:<id>" ttl=10s wait=2s queue=100
func (s *shop) Buy(ctx context.Context, id int64) (left int64, err error) {
	stock := "stock:" + ShopBuyKey(id)
	left, err = s.client.Get(ctx, stock).Int64()
	switch {
	case errors.Is(err, redis.Nil):
		return 0, errUnknown
	case err != nil:
		return 0, err
	case left == 0:
		return 0, errSoldOut
	}
	if err := s.charge(ctx); err != nil {
		return left, err
	}
	if err := lock.Check(ctx); err != nil { // the charge may have taken longer than the lease
		return left, err
	}
	left--
	return left, s.client.Set(ctx, stock, left, 0).Err()
}
