// Command service is the second program of docs/tutorial.md: a shop that answers over HTTP.
package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/runtime/fence"
)

//go:generate go tool lockgen

var (
	errSoldOut = errors.New("sold out")
	setFenced  = redis.NewScript(fence.RedisSet)
)

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
	token, err := fence.Token(ctx, ShopBuyKey(id))
	if err != nil {
		return 0, err
	}
	names := []string{stock, stock + ":token"}
	return left - 1, fence.RedisReply(setFenced.Run(ctx, s.client, names, token, left-1, 0).Slice())
}
