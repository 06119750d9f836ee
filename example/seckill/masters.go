package main

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"
	miniserver "github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/runtime/backends/redislock"
	"github.com/lockgen/lockgen/runtime/driver"
)

// longestLease is longer than the ttl of each directive of the shop.
const longestLease = 5100 * time.Millisecond

// masters are Redis servers that do not replicate each other.
type masters []*master

// master is a Redis inside this process that reports since when it is up.
type master struct {
	*miniredis.Miniredis
	life atomic.Pointer[life]
}

type life struct {
	runID string
	began time.Time
}

// embedMasters starts n masters. None of them had a lock before, so they report that they have been
// up for long.
func embedMasters(n int) (started masters, err error) {
	for i := range n {
		m := &master{Miniredis: miniredis.NewMiniRedis()}
		m.ClockTTL(true)
		if err := m.StartAddr("127.0.0.1:0"); err != nil {
			started.close()
			return nil, fmt.Errorf("start the embedded Redis %d: %w", i+1, err)
		}
		m.live(time.Now().Add(-longestLease - time.Minute))
		started = append(started, m)
	}
	return started, nil
}

func (ms masters) close() {
	for _, m := range ms {
		m.Close()
	}
}

// addresses returns the addresses of all masters, separated by commas.
func (ms masters) addresses() string {
	var all []string
	for _, m := range ms {
		all = append(all, m.Addr())
	}
	return strings.Join(all, ",")
}

// openMasters connects to the masters at addresses, which are separated by commas.
func openMasters(addresses string) (names []string, members []driver.Backend, closeClients func() error, err error) {
	redis.SetLogger(silentRedis{})
	names = strings.Split(addresses, ",")
	for _, name := range names {
		if err := hostPort(name); err != nil {
			return nil, nil, nil, err
		}
	}
	var clients []*redis.Client
	for _, name := range names {
		client := redis.NewClient(&redis.Options{Addr: name})
		clients = append(clients, client)
		members = append(members, redislock.New(client))
	}
	return names, members, func() (err error) {
		for _, c := range clients {
			err = errors.Join(err, c.Close())
		}
		return err
	}, nil
}

// live makes m answer INFO server, which miniredis does not support.
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
