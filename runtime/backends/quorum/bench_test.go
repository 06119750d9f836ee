package quorum_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/quorum"
	"github.com/lockgen/lockgen/runtime/backends/redislock"
	"github.com/lockgen/lockgen/runtime/driver"
)

// BenchmarkAcquire measures an uncontended acquire with five Redis servers, once while all are healthy and once
// while two hang.
func BenchmarkAcquire(b *testing.B) {
	var servers []*testserver.Instance
	members := map[string]driver.Backend{}
	for i := range 5 {
		s := testserver.StartRedis(b)
		servers = append(servers, s)
		members[fmt.Sprint(i)] = longRunning{redislock.Open(&redis.UniversalOptions{Addrs: []string{s.Addr()}})}
	}
	l := lock.New(quorum.New(members, quorum.Options{LongestTTL: time.Minute}), nil)
	defer func() { _ = l.Close(b.Context()) }()
	measure := func(b *testing.B) {
		var took []time.Duration
		for i := range b.N {
			begin := time.Now()
			_, h, err := l.Acquire(b.Context(), &lock.Policy{TTL: 5 * time.Second}, fmt.Sprintf("%s %d", b.Name(), i))
			took = append(took, time.Since(begin))
			if err != nil {
				b.Fatal(err)
			}
			h.Release(nil)
		}
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2].Microseconds()), "µs-p50")
	}
	b.Run("well", measure)
	servers[1].Stop()
	servers[3].Stop()
	b.Run("hung", measure)
	servers[1].Cont()
	servers[3].Cont()
}
