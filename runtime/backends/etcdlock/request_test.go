package etcdlock

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	lock "github.com/lockgen/lockgen/runtime"
)

// An attempt that is ended for its time has no answer, and is sent again; one that was
// refused at that very moment has one.
func TestAttemptTimeout(t *testing.T) {
	t.Parallel()
	b := newBackend(t, shared(t))
	b.options.AttemptTimeout = 10 * time.Millisecond
	for answer, mayHaveRun := range map[error]bool{
		rpctypes.ErrGRPCPermissionDenied:                        false,
		status.FromContextError(context.Canceled).Err():         true,
		status.FromContextError(context.DeadlineExceeded).Err(): true,
	} {
		attempts := 0
		r, err := b.do(t.Context(), func(ctx context.Context, _ ...grpc.CallOption) error {
			if attempts++; attempts > 1 {
				return nil
			}
			<-ctx.Done()
			return answer
		})
		require.Equal(t, mayHaveRun, r.mayHaveRun, answer)
		require.Equal(t, mayHaveRun, err == nil, answer)
	}
}

// An attempt that a proxy has ended, and that clientv3 has sent again by itself, had no answer either.
func TestAttemptThatTheClientRepeats(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		if err := stream.RecvMsg(new(pb.TxnRequest)); err != nil {
			return err
		}
		if asked.Add(1) == 1 {
			return status.Error(codes.DeadlineExceeded, "upstream request timeout")
		}
		return stream.SendMsg(&pb.TxnResponse{Header: &pb.ResponseHeader{Revision: 1}, Succeeded: true})
	}))
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	b := newBackend(t, listener.Addr().String())
	for _, repeated := range []bool{true, false} {
		_, r, err := b.txn(t.Context(), &pb.TxnRequest{})
		require.NoError(t, err)
		require.Equal(t, repeated, r.mayHaveRun)
	}
	require.EqualValues(t, 3, asked.Load())
}

// A request that its context ended says so: gRPC's own error matches no context's error.
func TestContextEndsRequest(t *testing.T) {
	t.Parallel()
	b := newBackend(t, shared(t))
	ctx, cancel := context.WithCancel(t.Context())
	r, err := b.do(ctx, func(ctx context.Context, _ ...grpc.CallOption) error {
		cancel()
		<-ctx.Done()
		return status.FromContextError(ctx.Err()).Err()
	})
	require.ErrorIs(t, err, context.Canceled)
	require.True(t, r.mayHaveRun)
}

// A server that can't be reached is asked a few times, and nothing may have run.
func TestNotSent(t *testing.T) {
	t.Parallel()
	b := newBackend(t, shared(t))
	attempts := 0
	r, err := b.do(t.Context(), func(context.Context, ...grpc.CallOption) error {
		attempts++
		return status.Error(codes.Unavailable, "connection refused")
	})
	require.ErrorContains(t, err, "connection refused")
	require.False(t, r.mayHaveRun)
	require.Equal(t, 5, attempts)
}

// What New can't use is said by the first call.
func TestInvalidClient(t *testing.T) {
	t.Parallel()
	b := New(nil)
	_, err := b.Acquire(t.Context(), attempt("key", "A:1"))
	require.ErrorIs(t, err, lock.ErrInvalid)
	require.ErrorContains(t, err, "clientv3.New")
	_, err = b.Subscribe(t.Context(), attempt("key", "A:1"))
	require.ErrorIs(t, err, lock.ErrInvalid)
	require.NoError(t, b.Undo(t.Context(), attempt("key", "A:1")))
	require.NoError(t, b.Close())
}
