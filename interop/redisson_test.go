package interop

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/internal/testserver"
	"github.com/lockgen/lockgen/runtime/backends/redislock"
)

func TestRedisson(t *testing.T) {
	addr := testserver.Redis(t)
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	java := startRedisson(t, addr)
	p := &pair{
		peer:     "Redisson RLock",
		theirs:   java,
		ours:     newLockgen(t, redislock.New(client)),
		sections: 1000,
	}
	p.test(t)
	t.Run("renew", func(t *testing.T) { p.outlast(t, p.theirs, p.ours, watchdog+time.Second) })
	t.Run("encode", func(t *testing.T) { encodes(t, java) })
}

// TestRedissonCluster tests Redisson in a Cluster, where it subscribes to sharded channels.
func TestRedissonCluster(t *testing.T) {
	addrs := testserver.StartCluster(t).Addrs()
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
	defer client.Close()
	p := &pair{
		peer:     "Redisson RLock, Cluster",
		theirs:   startRedisson(t, addrs...),
		ours:     newLockgen(t, redislock.New(client)),
		sections: 1000,
	}
	p.test(t)
}

// watchdog is the lease of Redisson's locks, which Redisson renews.
const watchdog = 5 * time.Second

// startRedisson starts Redisson on a server or on the nodes of a Cluster.
func startRedisson(t *testing.T, addrs ...string) *jvm {
	j := startJVM(t, "RedissonPeer", append([]string{strconv.FormatInt(watchdog.Milliseconds(), 10)}, addrs...)...)
	j.waiting = func(ctx context.Context, _ string) (bool, error) {
		for _, addr := range addrs {
			if ok, err := listens(ctx, addr, "redisson"); ok || err != nil {
				return ok, err
			}
		}
		return false, nil
	}
	return j
}

// listens reports whether a connection of the client with this name has a subscription.
// Redisson has one while it waits.
func listens(ctx context.Context, addr, name string) (bool, error) {
	list, err := testserver.Command(ctx, addr, "CLIENT", "LIST")
	if err != nil {
		return false, err
	}
	text, _ := list.(string)
	for line := range strings.Lines(text) {
		fields := " " + strings.TrimSpace(line) + " "
		if strings.Contains(fields, " name="+name+" ") &&
			(!strings.Contains(fields, " sub=0 ") || strings.Contains(fields, " ssub=") && !strings.Contains(fields, " ssub=0 ")) {
			return true, nil
		}
	}
	return false, nil
}
