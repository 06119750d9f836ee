package failover_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/internal/testserver"
	"github.com/lockgen/lockgen/runtime/backends/backendtest"
	"github.com/lockgen/lockgen/runtime/backends/failover"
	"github.com/lockgen/lockgen/runtime/backends/redislock"
	"github.com/lockgen/lockgen/runtime/driver"
)

func TestConformanceRedis(t *testing.T) {
	var addrs []string
	for range 3 {
		addrs = append(addrs, testserver.StartRedis(t).Addr())
	}
	open := func(addr func(string) string) driver.Backend {
		to := func(i int) driver.Backend {
			return redislock.Open(&redis.UniversalOptions{Addrs: []string{addr(addrs[i])}})
		}
		// Faults must not make it switch: the row checks locks at one engine.
		return failover.New(to(0), []driver.Backend{to(1)}, failover.Options{Record: to(2), LongestTTL: time.Hour, ByHand: true})
	}
	direct := func(addr string) string { return addr }
	begin(t, open(direct))
	cannot := backendtest.MutexesOnly("the record is about mutexes only")
	cannot[backendtest.Removal] = "the row of redis checks it"
	cannot[backendtest.Conflict] = "the row of redis checks it"
	cannot[backendtest.Inspection] = "the row of redis checks it"
	backendtest.Run(t, backendtest.Harness{
		Name:   "failover of redis",
		SameAs: "failover of memory",
		Open:   func(testing.TB) driver.Backend { return open(direct) },
		OpenFaulty: func(t testing.TB) (driver.Backend, backendtest.Faults) {
			n := backendtest.NewNetwork(t)
			return open(n.Addr), n
		},
		TTL:    800 * time.Millisecond,
		Slack:  50 * time.Millisecond,
		MaxTTL: time.Hour,
		MaxKey: 1024,
		Cannot: cannot,
	})
}
