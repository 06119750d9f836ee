package sharded_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/lockgen/lockgen/internal/severaltest"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/backends/redislock"
	"github.com/lockgen/lockgen/runtime/backends/sharded"
	"github.com/lockgen/lockgen/runtime/driver"
)

func init() { logging.Disable() } // go-redis logs each dial that fails

// steady has a long Timeout and Silence, because faults and a busy machine may delay reading a record.
var steady = sharded.Options{LongestTTL: time.Hour, Timeout: 5 * time.Second, Silence: time.Minute}

func TestConformance(t *testing.T) {
	members := map[string]driver.Backend{"a": memlock.New(), "b": memlock.New(), "c": memlock.New()}
	open := func() driver.Backend { return sharded.New(members, steady) }
	begin(t, open())
	severaltest.Memory(t, "sharded", open)
}

func TestConformanceRedis(t *testing.T) {
	severaltest.Redis(t, "sharded", 2, func(addrs []string) driver.Backend {
		members := map[string]driver.Backend{}
		for i, addr := range addrs {
			members[fmt.Sprint(i)] = redislock.Open(&redis.UniversalOptions{Addrs: []string{addr}})
		}
		return sharded.New(members, steady)
	}, func(b driver.Backend) { begin(t, b) })
}

func begin(t *testing.T, b driver.Backend) {
	t.Helper()
	if err := b.(*sharded.Backend).Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}
