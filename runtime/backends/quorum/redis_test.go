package quorum_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/internal/testserver"
	"github.com/lockgen/lockgen/runtime/backends/backendtest"
	"github.com/lockgen/lockgen/runtime/backends/quorum"
	"github.com/lockgen/lockgen/runtime/backends/redislock"
	"github.com/lockgen/lockgen/runtime/driver"
)

// old is a Redis that says that it was up for long: those of a test were not.
type old struct{ *redislock.Backend }

func (o old) Incarnation(ctx context.Context) (driver.Incarnation, error) {
	is, err := o.Backend.Incarnation(ctx)
	is.Age += 24 * time.Hour
	return is, err
}

func TestConformanceRedis(t *testing.T) {
	var addrs []string
	for range 3 {
		addrs = append(addrs, testserver.StartRedis(t).Addr())
	}
	open := func(addr func(string) string) driver.Backend {
		members := map[string]driver.Backend{}
		for i, a := range addrs {
			members[fmt.Sprint(i)] = old{redislock.Open(&redis.UniversalOptions{Addrs: []string{addr(a)}})}
		}
		return quorum.New(members, quorum.Options{LongestTTL: time.Hour, Timeout: time.Second})
	}
	direct := func(addr string) string { return addr }
	cannot := backendtest.MutexesOnly("a majority decides about mutexes only")
	cannot[backendtest.Removal] = "the row of redis checks it"
	cannot[backendtest.Conflict] = "the row of redis checks it"
	cannot[backendtest.Inspection] = "the row of redis checks it"
	backendtest.Run(t, backendtest.Harness{
		Name:   "quorum of redis",
		SameAs: "quorum of memory",
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

// Servers that have just started may have forgotten locks; the error says for how long.
func TestFreshRedis(t *testing.T) {
	members := map[string]driver.Backend{}
	for i := range 3 {
		members[fmt.Sprint(i)] = redislock.Open(&redis.UniversalOptions{Addrs: []string{testserver.StartRedis(t).Addr()}})
	}
	b := quorum.New(members)
	defer b.Close()
	if err := b.Ping(t.Context()); err == nil {
		t.Error("servers that have just started may vote")
	} else {
		t.Log(err)
	}
}
