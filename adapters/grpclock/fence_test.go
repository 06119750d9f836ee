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

type failing struct{}

func (failing) Advance(context.Context, string, int64) error { return errors.New("the disk is full") }
