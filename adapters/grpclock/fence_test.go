package grpclock_test

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	health "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/lockgen/lockgen/adapters/grpclock"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/fence"
)

// received returns ctx as the server of a call gets it.
func received(t *testing.T, ctx context.Context) context.Context {
	t.Helper()
	md, ok := metadata.FromOutgoingContext(ctx)
	require.True(t, ok)
	return metadata.NewIncomingContext(context.Background(), md)
}

func TestFence(t *testing.T) {
	locker := newLocker(t, memlock.New())
	intercept := grpclock.UnaryFenceInterceptor(&fence.Memory{})
	handled := 0
	call := func(ctx context.Context) codes.Code {
		_, err := intercept(ctx, nil, &grpc.UnaryServerInfo{}, func(context.Context, any) (any, error) {
			handled++
			return nil, nil
		})
		return status.Code(err)
	}
	hold := func(inside func(ctx context.Context)) {
		require.NoError(t, locker.Do(t.Context(), nil, "item:1", func(ctx context.Context) error {
			out, err := grpclock.OutgoingFence(ctx, "item:1")
			require.NoError(t, err)
			_, err = grpclock.OutgoingFence(ctx, "item:2")
			require.ErrorIs(t, err, lock.ErrNotHeld)
			inside(received(t, out))
			return nil
		}))
	}
	var late context.Context
	hold(func(ctx context.Context) { late = ctx })
	require.Equal(t, codes.OK, call(late))
	require.Equal(t, codes.OK, call(late), "the second call of one holder was refused")
	hold(func(ctx context.Context) { require.Equal(t, codes.OK, call(ctx)) })
	require.Equal(t, codes.FailedPrecondition, call(late))
	require.Equal(t, 3, handled)

	for _, bad := range []metadata.MD{nil, metadata.Pairs(fence.HeaderKey, "a"), metadata.Pairs(fence.HeaderToken, "7"),
		metadata.Pairs(fence.HeaderKey, "a", fence.HeaderToken, "x"), metadata.Pairs(fence.HeaderKey, "a", fence.HeaderToken, "-1")} {
		require.Equal(t, codes.InvalidArgument, call(metadata.NewIncomingContext(t.Context(), bad)), "%v", bad)
	}
	require.Equal(t, 3, handled, "a refused call was handled")

	intercept = grpclock.UnaryFenceInterceptor(failing{})
	require.Equal(t, codes.Unavailable, call(late))
}

// TestFenceInsideAnother checks a call whose context already carries a fence, of an outer lock or of an earlier hold. The server
// compares the last one.
func TestFenceInsideAnother(t *testing.T) {
	locker := newLocker(t, memlock.New())
	var store fence.Memory
	intercept := grpclock.UnaryFenceInterceptor(&store)
	require.NoError(t, locker.Do(t.Context(), nil, "order:1", func(ctx context.Context) error {
		ctx, err := grpclock.OutgoingFence(ctx, "order:1")
		require.NoError(t, err)
		return locker.Do(ctx, nil, "item:1", func(ctx context.Context) error {
			out, err := grpclock.OutgoingFence(metadata.AppendToOutgoingContext(ctx, "trace", "7"), "item:1")
			require.NoError(t, err)
			call := received(t, out)
			md, _ := metadata.FromIncomingContext(call)
			require.Equal(t, []string{"7"}, md.Get("trace"))
			token, err := fence.Token(ctx, "item:1")
			require.NoError(t, err)
			require.NoError(t, store.Advance(ctx, "item:1", token+1))
			_, err = intercept(call, nil, &grpc.UnaryServerInfo{}, func(context.Context, any) (any, error) { return nil, nil })
			require.Equal(t, codes.FailedPrecondition, status.Code(err), "a later holder of item:1 was seen")
			return nil
		})
	}))
}

// advances is a fence.Store that records the keys of its calls.
type advances chan string

func (a advances) Advance(_ context.Context, key string, _ int64) error {
	a <- key
	return nil
}

// TestFenceOfAnyKey checks that a key of any bytes arrives. gRPC itself sends only printable ASCII.
func TestFenceOfAnyKey(t *testing.T) {
	asked := make(advances, 1)
	server := grpc.NewServer(grpc.UnaryInterceptor(grpclock.UnaryFenceInterceptor(asked)))
	health.RegisterHealthServer(server, &service{do: func(context.Context) error { return nil }})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	locker := newLocker(t, memlock.New())
	ctx := t.Context()
	for _, key := range []string{"item:1", "订单:1", "item 1", " item:1 ", "line\nbreak", "item%201", "\xff"} {
		require.NoError(t, locker.Do(t.Context(), nil, key, func(inside context.Context) error {
			md, _ := metadata.FromOutgoingContext(ctx) // the metadata of the last key
			ctx, err = grpclock.OutgoingFence(metadata.NewOutgoingContext(inside, md), key)
			require.NoError(t, err)
			_, err := health.NewHealthClient(conn).Check(ctx, &health.HealthCheckRequest{})
			require.NoError(t, err, "%q", key)
			require.Equal(t, key, <-asked)
			return nil
		}))
	}
	require.NoError(t, conn.Close())
	server.Stop()
	require.NoError(t, <-served)
}

type failing struct{}

func (failing) Advance(context.Context, string, int64) error { return errors.New("the disk is full") }
