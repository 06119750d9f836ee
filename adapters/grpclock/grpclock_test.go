package grpclock_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	health "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/lockgen/lockgen/adapters/grpclock"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/locktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var secret = bytes.Repeat([]byte("s"), 32)

func signer(t *testing.T, secret []byte) *lock.Signer {
	t.Helper()
	s, err := lock.NewHMACSigner("k1", secret)
	require.NoError(t, err)
	return s
}

func newLocker(t *testing.T, b lock.Backend) *lock.Locker {
	t.Helper()
	l := lock.New(b, nil)
	t.Cleanup(func() { require.NoError(t, l.Close(context.Background())) })
	return l
}

// service is a gRPC server whose only method calls the field do.
type service struct {
	health.UnimplementedHealthServer
	address string
	dialer  func(context.Context, string) (net.Conn, error) // nil: TCP
	do      func(context.Context) error
	arrived chan struct{} // a value for each call, before the interceptor
	calls   atomic.Int64
	last    atomic.Pointer[error] // what the interceptor returned
}

func (s *service) Check(ctx context.Context, _ *health.HealthCheckRequest) (*health.HealthCheckResponse, error) {
	s.calls.Add(1)
	return &health.HealthCheckResponse{}, s.do(ctx)
}

func serve(t *testing.T, audience string, do func(context.Context) error) *service {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return serveOn(t, l, audience, do)
}

func serveOn(t *testing.T, l net.Listener, audience string, do func(context.Context) error) *service {
	t.Helper()
	v, err := lock.NewHMACVerifier("k1", secret)
	require.NoError(t, err)
	k, err := lock.NewKeyring(audience, &lock.KeyringOptions{Skew: time.Millisecond}, v)
	require.NoError(t, err)
	s := &service{do: do, arrived: make(chan struct{}, 100)}
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(
		func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			s.arrived <- struct{}{}
			reply, err := handle(ctx, request)
			s.last.Store(&err)
			return reply, err
		},
		grpclock.UnaryServerInterceptor(k)))
	health.RegisterHealthServer(server, s)
	s.address = l.Addr().String()
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		require.NoError(t, <-served)
	})
	return s
}

// client calls the method of s, with locks delegated to audience.
func client(t *testing.T, s *service, by *lock.Signer, audience string) func(context.Context) error {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+s.address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(s.dialer), grpc.WithChainUnaryInterceptor(grpclock.UnaryClientInterceptor(by, audience)))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second) // so that the test does not hang
		defer cancel()
		_, err := health.NewHealthClient(conn).Check(ctx, &health.HealthCheckRequest{})
		return err
	}
}

// P11: a callee is inside the caller's hold, and so is a callee of the callee.
func TestDelegation(t *testing.T) {
	var token uint64
	inside := func(ctx context.Context) error {
		own, _ := lock.Token(ctx)
		if own != token || !lock.Owns(ctx, "k") {
			return errors.New("not inside")
		}
		return newLocker(t, memlock.New()).Do(ctx, &lock.Policy{Reentrant: true}, "k", lock.Check)
	}
	price := serve(t, "price", inside)
	further := client(t, price, signer(t, secret), "price")
	stock := serve(t, "stock", func(ctx context.Context) error {
		md, _ := metadata.FromIncomingContext(ctx)
		return errors.Join(inside(ctx), further(metadata.AppendToOutgoingContext(ctx, "from", md.Get("from")[0])))
	})
	call := client(t, stock, signer(t, secret), "stock")

	l := newLocker(t, memlock.New())
	ctx := metadata.AppendToOutgoingContext(t.Context(), "from", "shop")
	require.NoError(t, l.Do(ctx, nil, "k", func(ctx context.Context) error {
		token, _ = lock.Token(ctx)
		if err := call(ctx); err != nil {
			return err
		}
		md, _ := metadata.FromOutgoingContext(ctx)
		require.Equal(t, metadata.MD{"from": {"shop"}}, md, "the caller's own metadata")
		return call(ctx)
	}))
	require.EqualValues(t, 2, price.calls.Load())
}

// TestWithoutALock checks that a call outside of any lock delegates nothing.
func TestWithoutALock(t *testing.T) {
	s := serve(t, "stock", func(ctx context.Context) error {
		md, _ := metadata.FromIncomingContext(ctx)
		if lock.Owns(ctx, "k") || md.Get(lock.DelegationKey) != nil {
			return errors.New("inside a lock")
		}
		return nil
	})
	require.NoError(t, client(t, s, signer(t, secret), "stock")(t.Context()))
}

// TestRefused checks that a call is not handled if its delegation is forged or for another service.
func TestRefused(t *testing.T) {
	s := serve(t, "stock", func(context.Context) error { return nil })
	l := newLocker(t, memlock.New())
	for _, call := range []func(context.Context) error{
		client(t, s, signer(t, bytes.Repeat([]byte("t"), 32)), "stock"),
		client(t, s, signer(t, secret), "price"),
	} {
		err := l.Do(t.Context(), nil, "k", call)
		require.Equal(t, codes.PermissionDenied, status.Code(err), err)
		require.ErrorIs(t, *s.last.Load(), lock.ErrInvalid)
	}
	require.Zero(t, s.calls.Load())
}

// TestOver checks that a delegation ends with the lease, for a callee that is inside and for later calls.
func TestOver(t *testing.T) { synctest.Test(t, isOver) }

func isOver(t *testing.T) {
	var own error
	network := bufconn.Listen(1 << 16)
	s := serveOn(t, network, "stock", func(ctx context.Context) error {
		<-ctx.Done()
		return own
	})
	s.dialer = func(ctx context.Context, _ string) (net.Conn, error) { return network.DialContext(ctx) }
	l := newLocker(t, memlock.New())
	call := client(t, s, signer(t, secret), "stock")
	fixed := &lock.Policy{TTL: time.Second, NoRenew: true}
	md := metadata.MD{}
	try := func() error {
		ctx, held, err := l.Acquire(t.Context(), fixed, "k")
		require.NoError(t, err)
		defer held.Release(&err)
		clear(md)
		require.NoError(t, lock.Inject(ctx, grpclock.MetadataCarrier(md), signer(t, secret), "stock"))
		return call(metadata.NewOutgoingContext(t.Context(), md))
	}
	err := try()
	require.Equal(t, codes.FailedPrecondition, status.Code(err), err)
	require.ErrorIs(t, *s.last.Load(), lock.ErrLost)
	own = errors.New("no such piece")
	err = try()
	require.Equal(t, codes.FailedPrecondition, status.Code(err), err)
	require.ErrorIs(t, *s.last.Load(), own)
	own = status.Error(codes.NotFound, "no such piece")
	err = try()
	require.Equal(t, codes.NotFound, status.Code(err), err)
	require.ErrorIs(t, *s.last.Load(), lock.ErrLost)

	err = call(metadata.NewOutgoingContext(t.Context(), md))
	require.Equal(t, codes.FailedPrecondition, status.Code(err), err)
	require.EqualValues(t, 3, s.calls.Load(), "the fourth is not handled")
}

// TestOwnLockIsLost checks that the interceptor does not change the status of a handler that loses a lock of its own.
func TestOwnLockIsLost(t *testing.T) {
	engine := locktest.New(t)
	l := engine.Locker(nil)
	s := serve(t, "stock", func(context.Context) error {
		return l.Do(t.Context(), nil, "own", func(context.Context) error { engine.Expire("own"); return nil })
	})
	call := client(t, s, signer(t, secret), "stock")
	for _, err := range []error{call(t.Context()), newLocker(t, memlock.New()).Do(t.Context(), nil, "k", call)} {
		require.Equal(t, codes.Unknown, status.Code(err), err)
		require.ErrorIs(t, *s.last.Load(), lock.ErrLost)
	}
}

// TestOneAtATime checks that a call that waits for another callee of the hold waits as long as its own context allows.
func TestOneAtATime(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	s := serve(t, "stock", func(context.Context) error {
		close(entered)
		<-leave
		return nil
	})
	l := newLocker(t, memlock.New())
	call := client(t, s, signer(t, secret), "stock")
	require.NoError(t, l.Do(t.Context(), nil, "k", func(ctx context.Context) error {
		first := make(chan error, 1)
		go func() { first <- call(ctx) }()
		<-entered
		<-s.arrived
		short, cancel := context.WithCancel(ctx)
		defer cancel()
		second := make(chan error, 1)
		go func() { second <- call(short) }()
		<-s.arrived
		cancel()
		err := <-second
		require.Equal(t, codes.Canceled, status.Code(err), err)
		require.Eventually(t, func() bool { return s.last.Load() != nil }, 10*time.Second, time.Millisecond)
		require.ErrorIs(t, *s.last.Load(), lock.ErrNotAcquired)
		require.Equal(t, codes.Canceled, status.Code(*s.last.Load()))
		close(leave)
		return <-first
	}))
}

// TestNotMade checks that a call is not sent if its lock was lost or its client has no Signer.
func TestNotMade(t *testing.T) {
	s := serve(t, "stock", func(context.Context) error { return nil })
	engine := locktest.New(t)
	err := engine.Locker(nil).Do(t.Context(), nil, "k", func(ctx context.Context) error {
		engine.Expire("k")
		<-ctx.Done()
		return client(t, s, signer(t, secret), "stock")(ctx)
	})
	require.ErrorIs(t, err, lock.ErrLost)
	require.ErrorIs(t, client(t, s, nil, "stock")(t.Context()), lock.ErrInvalid)
	require.Zero(t, s.calls.Load())
}
