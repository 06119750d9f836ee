package main

import (
	"context"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/redislock"
)

func TestThreePiecesAreSold(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	t.Cleanup(func() { _ = client.Close() })
	locker := lock.New(redislock.New(client), nil)
	t.Cleanup(func() { _ = locker.Close(context.WithoutCancel(t.Context())) })
	sold, err := sell(t.Context(), client, NewShopWithLock(&Shop{client}, locker))
	if sold != 3 || err != nil {
		t.Errorf("%d pieces were sold, %v: want 3", sold, err)
	}
}
