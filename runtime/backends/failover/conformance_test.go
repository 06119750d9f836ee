package failover_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/internal/severaltest"
	"github.com/lockgen/lockgen/runtime/backends/failover"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/backends/redislock"
	"github.com/lockgen/lockgen/runtime/driver"
)

// steady does not switch because of faults, since the conformance suite checks locks at one engine. Its Timeout and
// Silence are long, because faults and a busy machine may delay reading the record.
var steady = failover.Options{LongestTTL: time.Hour, ByHand: true, Timeout: 5 * time.Second, Silence: time.Minute}

func TestConformance(t *testing.T) {
	primary, standby := memlock.New(), memlock.New()
	open := func() driver.Backend {
		return failover.New(primary, []driver.Backend{standby}, steady)
	}
	begin(t, open())
	severaltest.Memory(t, "failover", open)
}

func TestConformanceRedis(t *testing.T) {
	severaltest.Redis(t, "failover", 3, func(addrs []string) driver.Backend {
		o := steady
		o.Record = to(addrs[2])
		return failover.New(to(addrs[0]), []driver.Backend{to(addrs[1])}, o)
	}, func(b driver.Backend) { begin(t, b) })
}

// to returns the Redis at an address.
func to(addr string) driver.Backend {
	return redislock.Open(&redis.UniversalOptions{Addrs: []string{addr}})
}

func begin(t *testing.T, b driver.Backend) {
	t.Helper()
	f := b.(*failover.Backend)
	for since, err := time.Now(), f.Begin(t.Context()); err != nil; err = f.Begin(t.Context()) {
		if time.Since(since) > 10*time.Second { // on a busy machine Begin may take longer than Options.Timeout
			t.Fatal(err)
		}
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}
