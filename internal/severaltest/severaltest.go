// Package severaltest checks Backends that are made of several Backends: those of packages quorum,
// failover and sharded. Each is checked over memory and over Redis, and by a storm.
package severaltest

import (
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/lockgen/lockgen/internal/testserver"
	"github.com/lockgen/lockgen/runtime/backends/backendtest"
	"github.com/lockgen/lockgen/runtime/driver"
)

// Memory checks the Backend that open returns, over members in memory.
func Memory(t *testing.T, name string, open func() driver.Backend) {
	backendtest.Run(t, backendtest.Harness{
		Name: name + " over memory", Open: func(testing.TB) driver.Backend { return open() },
		TTL: 500 * time.Millisecond, Slack: 20 * time.Millisecond, MaxTTL: time.Hour, MaxKey: backendtest.Unlimited, Holds: 300,
		Cannot: cannot(map[backendtest.Ability]string{
			backendtest.NetworkFaults: "calls into this process's memory can't be lost",
		}),
	})
}

// Redis checks the Backend that open returns for the addresses of several Redis. It first calls
// ready with that Backend.
func Redis(t *testing.T, name string, servers int, open func(addrs []string) driver.Backend, ready func(driver.Backend)) {
	var addrs []string
	for range servers {
		addrs = append(addrs, testserver.StartRedis(t).Addr())
	}
	ready(open(addrs))
	h := redis(name + " over redis")
	h.SameAs = name + " over memory"
	h.Open = func(testing.TB) driver.Backend { return open(addrs) }
	h.OpenFaulty = func(t testing.TB) (driver.Backend, backendtest.Faults) {
		n := backendtest.NewNetwork(t)
		var ways []string
		for _, addr := range addrs {
			ways = append(ways, n.Addr(addr))
		}
		return open(ways), n
	}
	h.TTL, h.MaxTTL = 800*time.Millisecond, time.Hour
	backendtest.Run(t, h)
}

// StormTTL is the longest lease of a storm. A storm takes leases of 250 ms and 500 ms.
const StormTTL = 700 * time.Millisecond

// Storm has Lockers acquire locks at random from the Backend that open returns, while strike causes faults at its
// Redis servers: for 4 s, or for the time in LOCKGEN_STORM. After that it calls open with well set: that
// Backend must not take the silence of a busy machine for a fault. key, if not nil, makes keys of names.
func Storm(t *testing.T, name string, open func(well bool) driver.Backend, key func(name string) string, strike func(d time.Duration)) {
	if os.Getenv(backendtest.StormEnv) == "" {
		t.Setenv(backendtest.StormEnv, "4s,1")
	}
	length, _, _ := strings.Cut(os.Getenv(backendtest.StormEnv), ",")
	d, err := time.ParseDuration(length)
	if err != nil {
		t.Fatalf("%s: %v", backendtest.StormEnv, err)
	}
	struck := make(chan struct{})
	go func() {
		defer close(struck)
		strike(d)
	}()
	defer func() { <-struck }()
	h := redis(name + " over redis, struck")
	over := time.Now().Add(d)
	h.Open = func(testing.TB) driver.Backend {
		well := time.Now().After(over)
		if well { // wait for the end of the last fault, because a new Locker must get every key
			<-struck
		}
		return open(well)
	}
	h.TTL, h.MaxTTL, h.Key = 250*time.Millisecond, StormTTL, key
	h.Cannot[backendtest.NetworkFaults] = "the servers are struck"
	backendtest.Run(t, h)
}

// redis returns the fields that both harnesses over Redis share.
func redis(name string) backendtest.Harness {
	return backendtest.Harness{Name: name, Slack: 50 * time.Millisecond, MaxKey: 1024, Cannot: cannot(nil)}
}

// cannot returns the abilities that every Backend made of several Backends lacks, together with those in more.
func cannot(more map[backendtest.Ability]string) map[backendtest.Ability]string {
	all := backendtest.MutexesOnly("members agree about mutexes only")
	for _, ability := range []backendtest.Ability{backendtest.Removal, backendtest.Conflict, backendtest.Inspection} {
		all[ability] = "the members' own rows check it"
	}
	maps.Copy(all, more)
	return all
}
