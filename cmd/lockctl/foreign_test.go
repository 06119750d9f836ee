package main

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rogpeppe/go-internal/testscript"
)

// redisson writes what Redisson's RLock does.
func redisson(ts *testscript.TestScript, url, key string) {
	c := redisClient(ts, url)
	ts.Check(c.HSet(context.Background(), key, "6c1a5ad2-7f0b-4c57-9e0e-6a3a0a9d2f11:54", "1").Err())
	ts.Check(c.PExpire(context.Background(), key, time.Minute).Err())
}

func redisText(ts *testscript.TestScript, url, key string) {
	ts.Check(redisClient(ts, url).Set(context.Background(), key, "text", time.Minute).Err())
}

func redisClient(ts *testscript.TestScript, url string) *redis.Client {
	o, err := redis.ParseURL(url)
	ts.Check(err)
	c := redis.NewClient(o)
	ts.Defer(func() { _ = c.Close() })
	return c
}
