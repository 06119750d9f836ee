package etcdlock

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockgen/lockgen/internal/testserver"
	"github.com/lockgen/lockgen/runtime/backends/backendtest"
	"github.com/lockgen/lockgen/runtime/driver"
)

func TestConformance(t *testing.T) {
	backendtest.Run(t, conformance(t, "etcd", []string{testserver.StartEtcd(t).Addr()}))
}

func TestConformanceThreeMembers(t *testing.T) {
	// This test is not about elections. A busy machine causes them, and after each of them leases count from
	// their beginning again. No lease is shorter than one and a half times the election timeout.
	cluster := testserver.StartEtcdCluster(t, "--heartbeat-interval", "100", "--election-timeout", "1900")
	h := conformance(t, "etcd (3 members)", cluster.Addrs())
	// Three servers need three times the CPU.
	h.TTL, h.Parallel, h.Holds = 2900*time.Millisecond, 6, 300
	h.SameAs = "etcd"
	backendtest.Run(t, h)
}

// conformance returns the harness for the cluster at addrs.
func conformance(t *testing.T, name string, addrs []string) backendtest.Harness {
	open := func(t testing.TB, n *backendtest.Network) driver.Backend {
		var by []string
		for _, addr := range addrs {
			by = append(by, n.Addr(addr))
		}
		return New(newClient(t, by))
	}
	c := newClient(t, addrs)
	var opened atomic.Int64
	return backendtest.Harness{
		Name: name,
		Cannot: map[backendtest.Ability]string{
			backendtest.Clock: "no clock: after a fault the record of a lock other than a mutex may stay, without a holder, until its key is used",
		},
		Open: func(t testing.TB) driver.Backend {
			// Each client uses one member, since all members must give the same answers. (A client of
			// three members has a dozen more goroutines, which the suite would count.)
			return New(newClient(t, addrs[opened.Add(1)%int64(len(addrs)):][:1]))
		},
		OpenFaulty: func(t testing.TB) (driver.Backend, backendtest.Faults) {
			n := backendtest.NewNetwork(t)
			return open(t, n), n
		},
		TTL: 1900 * time.Millisecond,
		// The session is rounded up to a whole second. Then etcd needs time to notice that the lease has
		// ended (it checks twice a second), and to agree on that.
		Slack:  1200 * time.Millisecond,
		MaxTTL: maxTTL,
		MaxKey: maxKey,
		Remove: func(t testing.TB, key string) {
			for _, kv := range contenders(t, c, key+"/") {
				_, err := c.Delete(outOf(t), string(kv))
				require.NoError(t, err)
			}
		},
		Occupy: func(t testing.TB, key string) {
			_, err := c.Put(outOf(t), key+"/no lock", "")
			require.NoError(t, err)
			t.Cleanup(func() { _, _ = c.Delete(context.Background(), key+"/no lock") })
		},
		Leftovers: func(t testing.TB, prefix string) (kept []string) {
			for _, key := range contenders(t, c, prefix) {
				if !strings.Contains(key, ".lockgen/undone/") {
					kept = append(kept, key)
				}
			}
			return kept
		},
	}
}

func outOf(t testing.TB) context.Context { return context.WithoutCancel(t.Context()) }

// contenders returns the keys that begin with prefix.
func contenders(t testing.TB, c *clientv3.Client, prefix string) (keys []string) {
	resp, err := c.Get(outOf(t), prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	require.NoError(t, err)
	for _, kv := range resp.Kvs {
		keys = append(keys, string(kv.Key))
	}
	return keys
}

var _ driver.Agreement = (*Backend)(nil)
