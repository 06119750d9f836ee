package etcdlock

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A proxy that has no server behind it is asked as often for a keep-alive as for any request:
// not without a pause, as clientv3's KeepAliveOnce does.
func TestNoteByAProxyWithoutAServer(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		asked.Add(1)
		if err := stream.RecvMsg(new(pb.LeaseKeepAliveRequest)); err != nil {
			return err
		}
		return status.Error(codes.Unavailable, "no healthy upstream")
	}))
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	err = newBackend(t, listener.Addr().String()).PutNote(ctx, "wait/key", "text", time.Minute)
	require.LessOrEqual(t, asked.Load(), int64(len(resend.Pauses)+1))
	require.Positive(t, asked.Load())
	require.ErrorContains(t, err, "no healthy upstream")
}
