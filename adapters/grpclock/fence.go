package grpclock

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/lockgen/lockgen/runtime/fence"
)

// binaryKey is the name of the metadata for a key that is not printable ASCII or that begins or ends with a
// space. gRPC encodes values whose name has this suffix, and can't send such a key under another name.
const binaryKey = fence.HeaderKey + "-Bin"

// OutgoingFence returns a context whose calls carry key and the token of the lock on key that ctx owns, as
// [fence.SetHeader] does for HTTP. They replace an earlier key and token. Its errors are those of [fence.Token].
func OutgoingFence(ctx context.Context, key string) (context.Context, error) {
	token, err := fence.Token(ctx, key)
	if err != nil {
		return ctx, err
	}
	md, _ := metadata.FromOutgoingContext(ctx) // a copy
	if md == nil {
		md = metadata.MD{}
	}
	md.Delete(fence.HeaderKey)
	md.Delete(binaryKey)
	if strings.TrimSpace(key) != key || strings.ContainsFunc(key, func(r rune) bool { return r < ' ' || r > '~' }) {
		md.Set(binaryKey, key)
	} else {
		md.Set(fence.HeaderKey, key)
	}
	md.Set(fence.HeaderToken, strconv.FormatInt(token, 10))
	return metadata.NewOutgoingContext(ctx, md), nil
}

// UnaryFenceInterceptor returns an interceptor that refuses a call without a token, or with a lower token than
// an earlier call. The status is FailedPrecondition if the token is too low, InvalidArgument if key or token is
// missing or the token is not a number, and Unavailable if the store fails. What [fence.Handler] says of
// requests that are still at work, and of callers that are not trusted, holds here too.
func UnaryFenceInterceptor(store fence.Store) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		md, _ := metadata.FromIncomingContext(ctx)
		carried := MetadataCarrier(md)
		key, text := cmp.Or(carried.Get(fence.HeaderKey), carried.Get(binaryKey)), carried.Get(fence.HeaderToken)
		token, err := strconv.ParseInt(text, 10, 64)
		if key == "" || err != nil || token <= 0 {
			return nil, status.Errorf(codes.InvalidArgument, "the metadata must have %s and %s, a number above 0: the caller must hold the lock; got %q and %q",
				fence.HeaderKey, fence.HeaderToken, key, text)
		}
		switch err := store.Advance(ctx, key, token); {
		case errors.Is(err, fence.ErrStale):
			return nil, status.Error(codes.FailedPrecondition, err.Error())
		case err != nil:
			return nil, status.Error(codes.Unavailable, "the store of fencing tokens failed")
		}
		return handle(ctx, request)
	}
}
