package etcdlock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/lockgen/lockgen/internal/faultproxy"
	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
)

func TestPing(t *testing.T) {
	t.Parallel()
	server := testserver.StartEtcd(t)
	c, b := admin(t, server.Addr()), newBackend(t, server.Addr())
	require.NoError(t, b.Ping(t.Context()))
	eventually(t, "no lease is left", func() bool {
		left, err := c.Leases(t.Context())
		return err == nil && len(left.Leases) == 0
	})

	alarm(t, c, pb.AlarmRequest_ACTIVATE)
	err := b.Ping(t.Context())
	require.ErrorIs(t, err, rpctypes.ErrNoSpace)
	alarm(t, c, pb.AlarmRequest_DEACTIVATE)
	require.NoError(t, b.Ping(t.Context()))

	server.Kill()
	begin := time.Now()
	require.ErrorContains(t, b.Ping(t.Context()), server.Addr())
	require.Less(t, time.Since(begin), 3*time.Second+meter.Since(begin))

	require.ErrorIs(t, New(nil).Ping(t.Context()), lock.ErrInvalid)
	closed := New(c)
	closed.Attach()
	require.NoError(t, closed.Close())
	require.ErrorIs(t, closed.Ping(t.Context()), lock.ErrClosed)
}

// A Ping returns soon after its context ended, whatever the server does.
func TestPingUnanswered(t *testing.T) {
	t.Parallel()
	proxy := faultproxy.NewStream(t, shared(t))
	b := newBackend(t, proxy.Addr())
	require.NoError(t, b.Ping(t.Context()))
	proxy.Hole(faultproxy.Replies)
	ctx, cancel := contextFor(t, 200*time.Millisecond)
	defer cancel()
	begin := time.Now()
	require.Error(t, b.Ping(ctx))
	require.Less(t, time.Since(begin), 300*time.Millisecond+meter.Since(begin))
}
