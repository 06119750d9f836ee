package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/runtime/backends/redislock"
	"github.com/lockgen/lockgen/runtime/driver"
)

type redisBackend struct{}

// redisPatience is how long a Redis may take to answer the first ping.
const redisPatience = 3 * time.Second

func (b redisBackend) serve(ctx context.Context, address string) (*engine, error) {
	redis.SetLogger(silentRedis{})
	if address == "" {
		return b.embed()
	}
	options, err := redisOptions(address)
	if err != nil {
		return nil, usageError{err}
	}
	options.MaxRetries = -1
	client := redis.NewClient(options)
	defer client.Close() //nolint:errcheck // it was used only for one ping
	ctx, cancel := context.WithTimeout(ctx, redisPatience)
	defer cancel()
	if err := client.Ping(ctx).Err(); err != nil {
		return nil, fmt.Errorf("no usable Redis at %s: %w\n%s", options.Addr, err, mendRedis(err))
	}
	return &engine{
		name:     "redis",
		label:    "Redis at " + options.Addr,
		backend:  "redis",
		address:  address,
		shutdown: func() {},
	}, nil
}

// embed starts a Redis inside this process, on loopback.
func (redisBackend) embed() (*engine, error) {
	server := miniredis.NewMiniRedis()
	// By default its keys last until the test says otherwise. Here leases must end by the clock, as
	// on a real server.
	server.ClockTTL(true)
	if err := server.StartAddr("127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("start the embedded Redis: %w", err)
	}
	return &engine{
		name:     "miniredis",
		label:    "an embedded miniredis at " + server.Addr(),
		backend:  "redis",
		address:  server.Addr(),
		shutdown: server.Close,
	}, nil
}

func (redisBackend) open(address string) (driver.Backend, func() error, error) {
	redis.SetLogger(silentRedis{})
	options, err := redisOptions(address)
	if err != nil {
		return nil, nil, err
	}
	client := redis.NewClient(options)
	return redislock.New(client), client.Close, nil
}

// redisOptions accepts "host:port" and "redis://:password@host:port/db".
func redisOptions(address string) (*redis.Options, error) {
	if strings.Contains(address, "://") {
		options, err := redis.ParseURL(address)
		if err != nil {
			return nil, errors.New("-redis: that URL is none of Redis; it looks like redis://:PASSWORD@HOST:PORT/0")
		}
		return options, nil
	}
	if _, port, err := net.SplitHostPort(address); err != nil || port == "" {
		return nil, fmt.Errorf("-redis %q: want HOST:PORT, for example 127.0.0.1:6379, or a redis:// URL", address)
	}
	return &redis.Options{Addr: address}, nil
}

func mendRedis(err error) string {
	if said := err.Error(); strings.Contains(said, "NOAUTH") || strings.Contains(said, "WRONGPASS") {
		return "Give the password: -redis redis://:PASSWORD@HOST:PORT/0"
	}
	return "Start one there, or leave out -redis (and unset REDIS_ADDR): the demo then brings its own."
}

// silentRedis drops messages that the client library would print on stderr itself, because all that
// matters is also returned as an error.
type silentRedis struct{}

func (silentRedis) Printf(context.Context, string, ...any) {}
