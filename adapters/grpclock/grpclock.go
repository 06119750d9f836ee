package grpclock

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	lock "github.com/lockgen/lockgen/runtime"
)

// MetadataCarrier is a [lock.Carrier] that a metadata.MD converts to: MetadataCarrier(md).
type MetadataCarrier metadata.MD

// Get returns the first value of key, in any case.
func (c MetadataCarrier) Get(key string) string {
	if values := metadata.MD(c).Get(key); len(values) > 0 {
		return values[0]
	}
	return ""
}

// Set replaces the values of key, in any case.
func (c MetadataCarrier) Set(key, value string) { metadata.MD(c).Set(key, value) }

// UnaryClientInterceptor returns an interceptor that delegates the locks that the context of a
// call owns to the service that audience names. A call without a lock is sent unchanged. The
// interceptor itself does no I/O.
//
// A call whose lock was lost is not made: its error wraps lock.ErrLost. If s is nil or
// audience empty, every call fails with an error that wraps lock.ErrInvalid.
func UnaryClientInterceptor(s *lock.Signer, audience string) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		md, _ := metadata.FromOutgoingContext(ctx) // a copy
		if md == nil {
			md = metadata.MD{}
		}
		if err := lock.Inject(ctx, MetadataCarrier(md), s, audience); err != nil {
			return err
		}
		return invoke(metadata.NewOutgoingContext(ctx, md), method, request, reply, conn, opts...)
	}
}

// UnaryServerInterceptor returns an interceptor that runs the handler of a call inside the locks
// that the caller delegated. A call without a delegation is handled without a lock. The
// interceptor blocks while another callee of the same hold is inside, until the call's context
// or the delegation ends.
//
// A call whose delegation is refused is not handled. Its status is PermissionDenied if the
// delegation is forged, is for another service or can't be read (lock.ErrInvalid),
// FailedPrecondition if it is over (lock.ErrLost), and else that of the context.
// If the delegation ends before the handler returns, the status is that of the handler's error,
// or FailedPrecondition if that error has none. The error wraps those of package lock, for the
// server's other interceptors. A caller sees only the status.
func UnaryServerInterceptor(k *lock.Keyring) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (reply any, err error) {
		md, _ := metadata.FromIncomingContext(ctx) // a copy, or nil, whose Get returns nothing
		inside, held, err := lock.Extract(ctx, MetadataCarrier(md), k)
		if err != nil {
			return nil, refusal(ctx, err)
		}
		defer func() {
			lost := held.Unlock() // nil without a delegation
			if lost != nil && !errors.Is(err, lock.ErrLost) {
				err = errors.Join(err, lost)
			}
			if _, own := status.FromError(err); lost != nil && !own {
				err = refusal(ctx, err)
			}
		}()
		return handle(inside, request)
	}
}

// statusError is an error of package lock with the status that the caller sees.
type statusError struct {
	error
	code codes.Code
}

func (e *statusError) Unwrap() error              { return e.error }
func (e *statusError) GRPCStatus() *status.Status { return status.New(e.code, e.Error()) }

// refusal returns err, an error of Extract or Unlock, with its status.
func refusal(ctx context.Context, err error) error {
	code := codes.FailedPrecondition
	switch {
	case errors.Is(err, lock.ErrInvalid):
		code = codes.PermissionDenied
	case !errors.Is(err, lock.ErrLost) && ctx.Err() != nil:
		code = status.FromContextError(ctx.Err()).Code()
	}
	return &statusError{err, code}
}
