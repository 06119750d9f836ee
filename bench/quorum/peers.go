package main

import (
	"context"
	"fmt"
	"math"

	"github.com/go-redsync/redsync/v4"
	syncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/quorum"
	"github.com/lockgen/lockgen/runtime/backends/redislock"
	"github.com/lockgen/lockgen/runtime/driver"
)

// locking takes a lock for one process, and returns what frees it.
type locking func(ctx context.Context, key string) (free func(), err error)

// peer is a library that locks at a majority of Redis masters.
type peer struct {
	name string
	join func(p *peer, clients []*redis.Client) locking

	lock   []locking // by process
	closes []func() error
}

// peers are ours, and what it is measured against.
var peers = []*peer{
	{name: "lockgen", join: joinQuorum},
	{name: "redsync, five pools", join: joinRedsync},
}

// joinQuorum is a Locker with default Options.
func joinQuorum(p *peer, clients []*redis.Client) locking {
	members := map[string]driver.Backend{}
	for i, c := range clients {
		members[fmt.Sprint(i)] = redislock.New(c)
	}
	locker := lock.New(quorum.New(members, quorum.Options{LongestTTL: longest, Timeout: timeout}), nil)
	p.closes = append(p.closes, func() error { return locker.Close(context.Background()) })
	return func(ctx context.Context, key string) (func(), error) {
		_, held, err := locker.Acquire(ctx, &lock.Policy{TTL: ttl}, key)
		return func() { held.Release(&err) }, err
	}
}

// joinRedsync is redsync with its own delay between tries, and without its limit of 32.
func joinRedsync(_ *peer, clients []*redis.Client) locking {
	var pools []syncredis.Pool
	for _, c := range clients {
		pools = append(pools, goredis.NewPool(c))
	}
	all := redsync.New(pools...)
	return func(ctx context.Context, key string) (func(), error) {
		m := all.NewMutex(key, redsync.WithExpiry(ttl), redsync.WithTries(math.MaxInt))
		err := m.LockContext(ctx)
		return func() { _, _ = m.UnlockContext(context.Background()) }, err
	}
}

// open makes the processes, each with clients of its own that heed a call's context: without that
// redsync would wait for a master that hangs as long as go-redis does.
func (p *peer) open(servers []*testserver.Instance) error {
	for range processes {
		var clients []*redis.Client
		for _, s := range servers {
			c := redis.NewClient(&redis.Options{Addr: s.Addr(), ContextTimeoutEnabled: true})
			if err := c.Ping(context.Background()).Err(); err != nil {
				return err
			}
			clients = append(clients, c)
		}
		p.lock = append(p.lock, p.join(p, clients))
		for _, c := range clients {
			p.closes = append(p.closes, c.Close)
		}
	}
	return nil
}

func (p *peer) close() {
	for _, c := range p.closes {
		_ = c()
	}
}
