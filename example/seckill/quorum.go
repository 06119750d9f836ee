package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"
	miniserver "github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/runtime/backends/quorum"
	"github.com/lockgen/lockgen/runtime/backends/redislock"
	"github.com/lockgen/lockgen/runtime/driver"
)

// quorumBackend keeps each lock at a majority of Redis masters, whose addresses are parted by commas.
type quorumBackend struct{}

const (
	embeddedMasters = 5
	// longestLease is above the ttl of each directive of the shop.
	longestLease = 6 * time.Second
	// memberPatience is for machines on which all masters and all workers share two cores.
	memberPatience = time.Second
)

func (b quorumBackend) serve(ctx context.Context, address string) (on *engine, err error) {
	redis.SetLogger(silentRedis{})
	on = &engine{name: "quorum", label: "a quorum of Redis at " + address, backend: "quorum", address: address, shutdown: func() {}}
	if address == "" {
		if on, err = embedMasters(); err != nil {
			return nil, err
		}
	}
	locks, closeClients, err := b.open(on.address)
	if err != nil {
		on.shutdown()
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, enginePatience)
	defer cancel()
	if err := locks.(driver.Pinger).Ping(ctx); err != nil {
		on.shutdown()
		return nil, fmt.Errorf("no usable quorum of Redis at %s: %w", on.address, errors.Join(err, locks.Close(), closeClients()))
	}
	return on, errors.Join(locks.Close(), closeClients())
}

func (quorumBackend) open(address string) (driver.Backend, func() error, error) {
	redis.SetLogger(silentRedis{})
	members := map[string]driver.Backend{}
	var clients []*redis.Client
	for _, one := range strings.Split(address, ",") {
		if err := hostPort(one); err != nil {
			return nil, nil, err
		}
		client := redis.NewClient(&redis.Options{Addr: one})
		clients = append(clients, client)
		members[one] = redislock.New(client)
	}
	return quorum.New(members, quorum.Options{LongestTTL: longestLease, Timeout: memberPatience}), func() (err error) {
		for _, c := range clients {
			err = errors.Join(err, c.Close())
		}
		return err
	}, nil
}

// master is a Redis inside this process, which is up since a moment that it tells.
type master struct {
	*miniredis.Miniredis
	life atomic.Pointer[life]
}

type life struct {
	runID string
	began time.Time
}

// embedMasters starts the masters. None of them had a lock before, so they say that they
// have been up for long.
func embedMasters() (*engine, error) {
	var masters []*master
	var addresses []string
	shutdown := func() {
		for _, m := range masters {
			m.Close()
		}
	}
	for i := range embeddedMasters {
		m := &master{Miniredis: miniredis.NewMiniRedis()}
		m.ClockTTL(true)
		if err := m.StartAddr("127.0.0.1:0"); err != nil {
			shutdown()
			return nil, fmt.Errorf("start the embedded Redis %d: %w", i+1, err)
		}
		m.live(time.Now().Add(-longestLease - time.Minute))
		masters = append(masters, m)
		addresses = append(addresses, m.Addr())
	}
	return &engine{
		name: "quorum", label: fmt.Sprintf("a quorum of %d embedded miniredis", len(masters)),
		backend: "quorum", address: strings.Join(addresses, ","), shutdown: shutdown,
		fault: &engineFault{
			name: "masters 2 and 4 of 5",
			kill: func() { masters[1].Close(); masters[3].Close() },
			mend: func() error { return errors.Join(masters[1].restartEmpty(), masters[3].restartEmpty()) },
			after: fmt.Sprintf("They were started again, empty, and vote again after %v, "+
				"because they may have forgotten locks of that length.", longestLease),
		},
	}, nil
}

// live has m answer INFO server, which miniredis does not know.
func (m *master) live(began time.Time) {
	m.life.Store(&life{runID: fmt.Sprintf("%s-%d", m.Addr(), began.UnixNano()), began: began})
	m.Server().SetPreHook(func(c *miniserver.Peer, command string, args ...string) bool {
		if !strings.EqualFold(command, "INFO") || len(args) != 1 || !strings.EqualFold(args[0], "server") {
			return false
		}
		is := m.life.Load()
		c.WriteBulk(fmt.Sprintf("# Server\r\nrun_id:%s\r\nuptime_in_seconds:%d\r\n", is.runID, int(time.Since(is.began).Seconds())))
		return true
	})
}

func (m *master) restartEmpty() error {
	m.FlushAll()
	if err := m.Restart(); err != nil {
		return fmt.Errorf("start the embedded Redis again: %w", err)
	}
	m.live(time.Now())
	return nil
}
