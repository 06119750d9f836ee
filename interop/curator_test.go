package interop

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/internal/testserver"
	"github.com/lockgen/lockgen/runtime/backends/zklock"
)

func TestCurator(t *testing.T) {
	addr := testserver.ZooKeeper(t)
	conn, _, err := zk.Connect([]string{addr}, 10*time.Second, zk.WithLogInfo(false))
	require.NoError(t, err)
	defer conn.Close()
	java := startJVM(t, "CuratorPeer", "5000", addr)
	java.waiting = func(_ context.Context, name string) (bool, error) {
		key, err := SectionRunKey(name)
		if err != nil {
			return false, err
		}
		children, _, err := conn.Children(zklock.DefaultRoot + "/" + node(key))
		return len(children) > 1, err
	}
	p := &pair{
		peer:     "Curator InterProcessMutex",
		theirs:   java,
		ours:     newLockgen(t, zklock.New([]string{addr})),
		sections: 1000,
	}
	p.test(t)
	t.Run("renew", func(t *testing.T) { p.outlast(t, p.theirs, p.ours, 6*time.Second) })
}

// node returns the name of the key's directory for the values of these tests. zklock escapes
// the % of sequences that look like its own escapes.
func node(key string) string {
	return strings.NewReplacer("%2F", "%252F", "%25", "%2525", "%C3%A9", "%25C3%25A9").Replace(key)
}
