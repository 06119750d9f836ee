package quorum_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/lockgen/lockgen/internal/severaltest"
	"github.com/lockgen/lockgen/internal/testserver"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/backends/quorum"
	"github.com/lockgen/lockgen/runtime/backends/redislock"
	"github.com/lockgen/lockgen/runtime/driver"
)

func init() { logging.Disable() } // go-redis logs each dial that fails

// steady has a long Timeout, so that a member does not count as silent on a busy machine.
var steady = quorum.Options{LongestTTL: time.Hour, Timeout: 5 * time.Second}

func TestConformance(t *testing.T) {
	members := map[string]driver.Backend{"a": memlock.New(), "b": memlock.New(), "c": memlock.New()}
	severaltest.Memory(t, "quorum", func() driver.Backend { return quorum.New(members, steady) })
}

// longRunning is a Redis that reports that it started long ago, although the servers of a test have just started.
type longRunning struct{ *redislock.Backend }

func (o longRunning) Incarnation(ctx context.Context) (driver.Incarnation, error) {
	is, err := o.Backend.Incarnation(ctx)
	is.Age += 24 * time.Hour
	return is, err
}

func TestConformanceRedis(t *testing.T) {
	severaltest.Redis(t, "quorum", 3, func(addrs []string) driver.Backend {
		members := map[string]driver.Backend{}
		for i, addr := range addrs {
			members[fmt.Sprint(i)] = longRunning{redislock.Open(&redis.UniversalOptions{Addrs: []string{addr}})}
		}
		return quorum.New(members, steady)
	}, func(b driver.Backend) { _ = b.Close() })
}

// Servers that have just started may have forgotten locks, so they must not vote. The error says for how long.
func TestFreshRedis(t *testing.T) {
	members := map[string]driver.Backend{}
	for i := range 3 {
		members[fmt.Sprint(i)] = redislock.Open(&redis.UniversalOptions{Addrs: []string{testserver.StartRedis(t).Addr()}})
	}
	b := quorum.New(members)
	defer b.Close()
	if err := b.Ping(t.Context()); err == nil {
		t.Error("Ping succeeds although the servers have just started")
	} else {
		t.Log(err)
	}
}
