package grpclock_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/lockgen/lockgen/adapters/grpclock"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/fence"
)

// received is ctx as the server of a call gets it.
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
	require.Equal(t, codes.OK, call(late), "a holder calls more than once")
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

// The context of a call carries a fence already: of an outer lock, or of the same lock before. The server
// compares the last.
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

type failing struct{}

func (failing) Advance(context.Context, string, int64) error { return errors.New("the disk is full") }
