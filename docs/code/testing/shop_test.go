package testing

import (
	"context"
	"errors"
	"testing"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/locktest"
)

func TestSellStopsWhenItsLockIsLost(t *testing.T) {
	engine := locktest.New(t)
	locker := engine.Locker(nil)
	shop := &Shop{Store: func(context.Context) error {
		engine.Expire(ShopSellKey(7)) // as after a pause that was longer than the lease
		return nil
	}}
	err := NewShopWithLock(shop, locker).Sell(context.Background(), 7)
	if !errors.Is(err, lock.ErrLost) || shop.Sold != 0 {
		t.Fatalf("sold %d, %v: want none sold, and ErrLost", shop.Sold, err)
	}
}
