package redislock

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/internal/faultproxy"
	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// A process subscribes at another node of a Cluster if the first node can't be reached.
func TestSubscriptionAtAnotherNode(t *testing.T) {
	t.Parallel()
	c := stableCluster(t)
	a := &driver.Acquisition{Key: newKey(t), ID: newID(), TTL: long, Tokens: 1}
	away := c.NodeFor(channelOfProcess(engine.Process(a.ID))).Addr()
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
	eventually(t, 20*time.Second, "a subscription at another master", func() bool { return w.state() == confirmed })
}

// If calls have found that another server has replaced a silent one, the subscription follows before its
// connection is closed for its silence.
func TestSubscriptionFollowsCalls(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t)
	old, next := faultproxy.New(t, server), faultproxy.New(t, server)
	var to atomic.Value
	to.Store(old.Addr())
	b := newTestBackend(t, old.Addr(), func(o *redis.Options) {
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, to.Load().(string))
		}
	})
	b.router.failsOver = true // as behind Sentinels
	grantOf(t, b, &driver.Acquisition{Key: newKey(t), ID: newID(), TTL: long, Tokens: 1})
	a := &driver.Acquisition{Key: newKey(t), ID: newID()}
	s := subscribe(t, b, a)
	command(t, server, "PUBLISH", channelOfProcess(engine.Process(a.ID)), "look "+a.ID+" "+a.Key)
	receive(t, "the notice", s.C())
	old.Hole(faultproxy.Replies)
	to.Store(next.Addr())
	begin := time.Now()
	grantOf(t, b, &driver.Acquisition{Key: newKey(t), ID: newID(), TTL: long, Tokens: 1})
	receive(t, "a notice that messages may have been missed", s.C())
	if took := time.Since(begin); took > pingAfter+meter.Since(begin) {
		t.Errorf("the subscription followed after %v", took)
	}
}

// A process that may not subscribe polls. It may wait for long while others get the lock. The error says why.
func TestWaitWithoutAChannel(t *testing.T) {
	t.Parallel()
	server, login := serverWithUser(t, append(documentedRights(t), "resetchannels")...)
	addr, key := server.Addr(), "seckill:lock"
	_, held := acquire(t, newLocker(t, addr), nil, key)
	defer mustRelease(t, held)
	_, _, err := newLocker(t, addr, login).Acquire(t.Context(), &lock.Policy{Wait: 5 * time.Second}, key)
	require.ErrorIs(t, err, lock.ErrNotAcquired)
	require.NotErrorIs(t, err, lock.ErrUnavailable)
	require.ErrorContains(t, err, "it could not subscribe to releases, and polled: the server refuses to subscribe to ")
	require.ErrorContains(t, err, "NOPERM")
}
