package redislock

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/internal/testserver"
	"github.com/lockgen/lockgen/runtime/driver"
)

// A process subscribes at another node of a Cluster if one can't be reached.
func TestSubscriptionAtAnotherNode(t *testing.T) {
	t.Parallel()
	c := testserver.StartCluster(t)
	a := &driver.Acquisition{Key: newKey(t), ID: newID(), TTL: long, Tokens: 1}
	away := c.NodeFor(channelOfProcess(processOf(a.ID))).Addr()
	b := clusterBackend(t, c, func(o *redis.ClusterOptions) {
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if addr == away {
				return nil, errors.New("no route to host")
			}
			return (&net.Dialer{}).DialContext(ctx, network, addr)
		}
	})
	t.Cleanup(func() { _ = b.Close() })
	w := b.subscriber.waiter(a, true)
	eventually(t, 20*time.Second, "a subscription at a master that is well", func() bool { return w.state() == standing })
}
