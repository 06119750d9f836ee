package redislock

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/internal/testserver"
	"github.com/lockgen/lockgen/runtime/backends/backendtest"
	"github.com/lockgen/lockgen/runtime/driver"
)

// longSilence is after how many milliseconds a silent primary is replaced. A busy machine must not
// cause a failover, because a failover may lose locks (see the package comment).
const longSilence = "60000"

func TestConformanceStandalone(t *testing.T) {
	addr := testserver.StartRedis(t).Addr()
	backendtest.Run(t, conformance("redis", func() []string { return []string{addr} },
		func(n *backendtest.Network) redis.UniversalOptions {
			return redis.UniversalOptions{Addrs: []string{n.Addr(addr)}}
		}))
}

func TestConformanceSentinel(t *testing.T) {
	s := testserver.StartSentinel(t)
	onAll(t, s.Addrs(), "SENTINEL", "SET", s.MasterName(), "down-after-milliseconds", longSilence)
	primary := func() []string { return []string{s.Primary(t.Context()).Addr()} }
	h := conformance("redis sentinel", primary, func(n *backendtest.Network) redis.UniversalOptions {
		return redis.UniversalOptions{Addrs: s.Addrs(), MasterName: s.MasterName(), Dialer: n.DialContext}
	})
	h.SameAs = "redis"
	backendtest.Run(t, h)
}

func TestConformanceCluster(t *testing.T) {
	c := testserver.StartCluster(t)
	onAll(t, c.Addrs(), "CONFIG", "SET", "cluster-node-timeout", longSilence)
	backendtest.Run(t, conformance("redis cluster", c.Addrs,
		func(n *backendtest.Network) redis.UniversalOptions {
			return redis.UniversalOptions{Addrs: c.Addrs(), Dialer: n.DialContext}
		}))
}

// defaultLimitGroups are the groups of checks that need the usual directLimit. They bound how long a call lasts
// after its context has ended. Exclusion is one of them because acquires that are sent again must not break it.
var defaultLimitGroups = []string{"Cancellation", "Close", "Exclusion", "Leaks", "Replies", "Waiting"}

// conformance returns the harness for servers whose primaries are at addrs and whose
// clients are made from options.
func conformance(name string, addrs func() []string, options func(*backendtest.Network) redis.UniversalOptions) backendtest.Harness {
	return backendtest.Harness{
		Name: name,
		Open: func(t testing.TB) driver.Backend {
			o := options(nil)
			b := Open(&o)
			if slices.ContainsFunc(defaultLimitGroups, func(group string) bool { return strings.Contains(t.Name(), "/"+group+"/") }) {
				return b
			}
			return allowSlowAnswers(b)
		},
		OpenFaulty: func(t testing.TB) (driver.Backend, backendtest.Faults) {
			n := backendtest.NewNetwork(t)
			o := options(n)
			return Open(&o), n
		},
		TTL:    800 * time.Millisecond,
		Slack:  50 * time.Millisecond,
		MaxTTL: maxTTL,
		MaxKey: maxKey,
		Refuses: func(key string) string {
			if _, err := tagged(key); err != nil {
				return err.Error()
			}
			return ""
		},
		Remove: func(t testing.TB, key string) { onAll(t, addrs(), "DEL", key) },
		Occupy: func(t testing.TB, key string) {
			onAll(t, addrs(), "SET", key, "not a lock", "EX", "60")
		},
		Leftovers: func(t testing.TB, prefix string) (kept []string) {
			for _, reply := range onAll(t, addrs(), "KEYS", "*"+prefix+"*") {
				for _, key := range reply.([]any) {
					switch name := key.(string); {
					case strings.HasPrefix(name, "lockgen:token:"):
					case strings.HasPrefix(name, "lockgen:undone:"):
					case isUnusedRecord(t, addrs(), name):
					default:
						kept = append(kept, name)
					}
				}
			}
			for _, reply := range onAll(t, addrs(), "PUBSUB", "CHANNELS", "*"+prefix+"*") {
				for _, channel := range reply.([]any) {
					kept = append(kept, channel.(string))
				}
			}
			return kept
		},
	}
}

// isUnusedRecord reports whether the record has no holder and no waiter, and only refuses late attempts.
func isUnusedRecord(t testing.TB, addrs []string, key string) bool {
	for _, reply := range onAll(t, addrs, "TYPE", key) {
		if reply != "string" {
			continue
		}
		for _, record := range onAll(t, addrs, "GET", key) {
			text, _ := record.(string)
			return !strings.Contains(text, `"in"`) && !strings.Contains(text, `"queue"`)
		}
	}
	return false
}

// onAll sends a command to each server, and returns the replies. It leaves out servers that
// refer the command to another server.
func onAll(t testing.TB, addrs []string, args ...string) (replies []any) {
	t.Helper()
	for _, addr := range addrs {
		reply, err := testserver.Command(t.Context(), addr, args...)
		var refused testserver.ServerError
		if errors.As(err, &refused) && (strings.HasPrefix(string(refused), "MOVED") || strings.HasPrefix(string(refused), "READONLY")) {
			continue
		}
		if err != nil {
			t.Fatalf("%v at %s: %v", args, addr, err)
		}
		replies = append(replies, reply)
	}
	return replies
}

var _ driver.Agreement = (*Backend)(nil)
