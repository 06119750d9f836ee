package main

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

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

// locking acquires a lock for one process.
type locking func(ctx context.Context, key string, w wish) (*hold, error)

// wish says how a lock is acquired.
type wish struct {
	try   bool // ask the masters only once
	fixed bool // don't renew ours, since a renewal would discover the masters that forgot the lock; redsync never renews
}

// hold is a lock that was acquired.
type hold struct {
	proven func() bool // whether the library still promises that nobody else has the lock
	free   func()
}

// peer is a library that locks at a majority of Redis masters.
type peer struct {
	name string
	join func(p *peer, clients []*redis.Client) locking
	// owner adds to all the question who has key at a master. answer is valid once all has run.
	owner func(all redis.Pipeliner, key string) (answer func() string)

	lock   []locking // by process
	links  []*link   // from the first process to each master
	closes []func() error
}

// peers lists ours and the library that it is compared with.
var peers = []*peer{
	{name: "lockgen", join: joinQuorum, owner: func(all redis.Pipeliner, key string) func() string {
		owners := all.HKeys(context.Background(), key)
		return func() string { return strings.Join(owners.Val(), " ") }
	}},
	{name: "redsync, five pools", join: joinRedsync, owner: func(all redis.Pipeliner, key string) func() string {
		return all.Get(context.Background(), key).Val
	}},
}

// joinQuorum makes a Locker with default Options.
func joinQuorum(p *peer, clients []*redis.Client) locking {
	members := map[string]driver.Backend{}
	for i, c := range clients {
		members[fmt.Sprint(i)] = redislock.New(c)
	}
	locker := lock.New(quorum.New(members, quorum.Options{LongestTTL: longest(), Timeout: timeout}), nil)
	p.closes = append(p.closes, func() error { return locker.Close(context.Background()) })
	return func(ctx context.Context, key string, w wish) (*hold, error) {
		ctx, held, err := locker.Acquire(ctx, &lock.Policy{TTL: ttl, Try: w.try, NoRenew: w.fixed}, key)
		return &hold{func() bool { return lock.Check(ctx) == nil }, func() { held.Release(&err) }}, err
	}
}

// joinRedsync makes redsync with its default delay between tries, and without its limit of 32 tries.
func joinRedsync(_ *peer, clients []*redis.Client) locking {
	var pools []syncredis.Pool
	for _, c := range clients {
		pools = append(pools, goredis.NewPool(c))
	}
	all := redsync.New(pools...)
	return func(ctx context.Context, key string, w wish) (*hold, error) {
		m := all.NewMutex(key, redsync.WithExpiry(ttl), redsync.WithTries(math.MaxInt))
		take := m.LockContext
		if w.try {
			take = m.TryLockContext
		}
		err := take(ctx)
		return &hold{func() bool { return time.Now().Before(m.Until()) }, func() { _, _ = m.UnlockContext(context.Background()) }}, err
	}
}

// open makes the processes. Each has clients of its own that obey the contexts of calls: otherwise
// redsync would wait for a hung master as long as go-redis does.
func (p *peer) open(servers []*testserver.Instance) error {
	p.lock, p.links, p.closes = nil, nil, nil
	for i := range processes {
		var clients []*redis.Client
		for _, s := range servers {
			o := &redis.Options{Addr: s.Addr(), ContextTimeoutEnabled: true}
			if i == 0 {
				l := &link{}
				p.links, o.Dialer = append(p.links, l), l.dial
			}
			c := redis.NewClient(o)
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
