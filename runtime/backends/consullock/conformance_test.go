package consullock

import (
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/lockgen/lockgen/internal/testserver"
	"github.com/lockgen/lockgen/runtime/backends/backendtest"
	"github.com/lockgen/lockgen/runtime/driver"
)

func TestConformance(t *testing.T) {
	const ttl = 2 * time.Second
	addr := testserver.Consul(t)
	kv := newClient(t, addr).KV()
	backendtest.Run(t, backendtest.Harness{
		Name: "consul",
		Cannot: map[backendtest.Ability]string{
			backendtest.Clock: "no clock: after a fault the record of a lock other than a mutex may stay, without a holder, until its key is used",
		},
		Open: func(t testing.TB) driver.Backend { return New(newClient(t, addr), noDelay()) },
		OpenFaulty: func(t testing.TB) (driver.Backend, backendtest.Faults) {
			n := backendtest.NewNetwork(t)
			return New(newClient(t, n.Addr(addr)), noDelay()), n
		},
		TTL: ttl,
		// A session is longer than the ttl by a third and a step of its class. Consul ends
		// it after twice its length.
		Slack:  2*classOf(ttl).sessionTTL() - ttl + 300*time.Millisecond,
		MinTTL: 500 * time.Millisecond,
		MaxTTL: maxTTL,
		MaxKey: maxKey,
		// The server writes a log entry for each change. More checks at once would overload
		// a machine with two cores.
		Parallel: 6,
		Refuses: func(key string) string {
			if err := checkKey(key); err != nil {
				return err.Error()
			}
			return ""
		},
		Remove: func(t testing.TB, key string) {
			if _, err := kv.Delete(key, nil); err != nil {
				t.Error(err)
			}
		},
		Occupy: func(t testing.TB, key string) {
			if _, err := kv.Put(&api.KVPair{Key: key, Value: []byte("not a lock")}, nil); err != nil {
				t.Error(err)
			}
			t.Cleanup(func() { _, _ = kv.Delete(key, nil) })
		},
		Leftovers: func(t testing.TB, prefix string) (kept []string) {
			all, _, err := kv.Keys("", "", nil)
			if err != nil {
				t.Error(err)
			}
			for _, key := range all {
				if strings.Contains(key, prefix) {
					kept = append(kept, key)
				}
			}
			return kept
		},
	})
}
