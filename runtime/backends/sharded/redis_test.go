package sharded_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/internal/testserver"
	"github.com/lockgen/lockgen/runtime/backends/backendtest"
	"github.com/lockgen/lockgen/runtime/backends/redislock"
	"github.com/lockgen/lockgen/runtime/backends/sharded"
	"github.com/lockgen/lockgen/runtime/driver"
)

func TestConformanceRedis(t *testing.T) {
	addrs := []string{testserver.StartRedis(t).Addr(), testserver.StartRedis(t).Addr()}
	open := func(addr func(string) string) driver.Backend {
		members := map[string]driver.Backend{}
		for i, a := range addrs {
			members[fmt.Sprint(i)] = redislock.Open(&redis.UniversalOptions{Addrs: []string{addr(a)}})
		}
		return sharded.New(members, sharded.Options{LongestTTL: time.Hour})
	}
	direct := func(addr string) string { return addr }
	b := open(direct).(*sharded.Backend)
	if err := b.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	cannot := backendtest.MutexesOnly("the records are about mutexes only")
	cannot[backendtest.Removal] = "the row of redis checks it"
	cannot[backendtest.Conflict] = "the row of redis checks it"
	cannot[backendtest.Inspection] = "the row of redis checks it"
	backendtest.Run(t, backendtest.Harness{
		Name:   "sharded over redis",
		SameAs: "sharded over memory",
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
