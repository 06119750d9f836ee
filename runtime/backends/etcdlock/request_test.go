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
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	lock "github.com/lockgen/lockgen/runtime"
)

// An attempt that ends by its timeout has no answer, and is sent again. An attempt that is
// refused at the moment of the timeout has an answer.
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

// clientv3 has sent an attempt again by itself. If a proxy ended the first attempt, or its answer was lost in this
// process, it may have run. If etcd refused it, it has not run.
func TestAttemptThatTheClientRepeats(t *testing.T) {
	t.Parallel()
	fromProxy := status.Error(codes.DeadlineExceeded, "upstream request timeout")
	for _, c := range []struct {
		first, lost error // the server's answer, and the error that replaces it in the client
		mayHaveRun  bool
	}{
		{fromProxy, nil, true},
		{nil, fromProxy, true},
		{rpctypes.ErrGRPCInvalidAuthToken, nil, false},
	} {
		var asked, answered atomic.Int64
		addr := answering(t, func() error {
			if asked.Add(1) == 1 {
				return c.first
			}
			return nil
		})
		lose := func(
			ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption,
		) error {
			err := invoke(ctx, method, req, reply, cc, options...)
			if answered.Add(1) == 1 && c.lost != nil {
				return c.lost
			}
			return err
		}
		b := New(newClient(t, []string{addr}, func(config *clientv3.Config) {
			config.DialOptions = append(config.DialOptions, grpc.WithChainUnaryInterceptor(lose))
		}), Options{AttemptTimeout: soon})
		t.Cleanup(func() { require.NoError(t, b.Close()) })
		for _, repeated := range []bool{true, false} {
			_, r, err := b.txn(t.Context(), &pb.TxnRequest{})
			require.NoError(t, err)
			require.Equal(t, repeated && c.mayHaveRun, r.mayHaveRun, "%v, %v", c.first, c.lost)
		}
		require.EqualValues(t, 3, asked.Load())
	}
}

// answering starts a server whose transactions succeed if answer returns nil, and returns its address.
func answering(t *testing.T, answer func() error) string {
	t.Helper()
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		if err := stream.RecvMsg(new(pb.TxnRequest)); err != nil {
			return err
		}
		if err := answer(); err != nil {
			return err
		}
		return stream.SendMsg(&pb.TxnResponse{Header: &pb.ResponseHeader{Revision: 1}, Succeeded: true})
	}))
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return listener.Addr().String()
}

// A request that ended with its context returns the context's error. gRPC's own error does not match it.
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

// A request to a server that can't be reached is tried a few times, and certainly has not run.
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

// If New got an unusable client, the first call returns an error that says so.
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
