package zklock

import (
	"path"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/internal/testserver"
	"github.com/lockgen/lockgen/runtime/backends/backendtest"
	"github.com/lockgen/lockgen/runtime/driver"
)

func TestConformanceStandalone(t *testing.T) {
	addr := testserver.StartZooKeeper(t).Addr()
	backendtest.Run(t, conformance(t, "zookeeper", addr))
}

func TestConformanceEnsemble(t *testing.T) {
	h := conformance(t, "zookeeper (3 servers)", testserver.StartEnsemble(t).Addrs()...)
	h.SameAs = "zookeeper"
	backendtest.Run(t, h)
}

func conformance(t testing.TB, name string, addrs ...string) backendtest.Harness {
	root := newRoot(t)
	conn := admin(t, addrs...)
	return backendtest.Harness{
		Name: name,
		Cannot: map[backendtest.Ability]string{
			backendtest.Clock: "no clock: after a fault the record of a lock other than a mutex may stay, without a holder, until its key is used",
		},
		Open: func(testing.TB) driver.Backend { return New(addrs, Options{Root: root}) },
		OpenFaulty: func(t testing.TB) (driver.Backend, backendtest.Faults) {
			n := backendtest.NewNetwork(t)
			var through []string
			for _, addr := range addrs {
				through = append(through, n.Addr(addr))
			}
			return New(through, Options{Root: root}), n
		},
		TTL: 1500 * time.Millisecond,
		// The session is longer than the lease by an eighth and two ticks, and
		// the server's own count is a tick wide.
		Slack:    200*time.Millisecond + 4*100*time.Millisecond,
		MinTTL:   200 * time.Millisecond,
		MaxTTL:   longestLease(100*time.Millisecond, time.Minute),
		MaxKey:   maxName,
		Parallel: 8,
		Remove: func(t testing.TB, key string) {
			dir := path.Join(root, encodeName(key))
			catchUp(t, conn, dir)
			for _, name := range contenders(t, conn, dir) {
				require.NoError(t, conn.Delete(path.Join(dir, name), -1))
			}
		},
		Occupy: func(t testing.TB, key string) {
			dir := path.Join(root, encodeName(key))
			_, err := conn.Create(root, nil, zk.FlagPersistent, zk.WorldACL(zk.PermAll))
			if err != nil {
				require.ErrorIs(t, err, zk.ErrNodeExists)
			}
			_, err = conn.Create(dir, []byte("not a lock"), zk.FlagPersistent, zk.WorldACL(zk.PermAll))
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, conn.Delete(dir, -1)) })
		},
		Leftovers: func(t testing.TB, prefix string) (kept []string) {
			catchUp(t, conn, root)
			for _, dir := range contenders(t, conn, root) {
				if strings.HasPrefix(dir, encodeName(prefix)) {
					for _, node := range contenders(t, conn, path.Join(root, dir)) {
						kept = append(kept, path.Join(dir, node))
					}
				}
			}
			return kept
		},
	}
}
