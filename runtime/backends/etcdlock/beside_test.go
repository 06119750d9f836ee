package etcdlock

import (
	"context"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/lockgen/lockgen/runtime/driver"
)

// A record is refused where a mutex is, however many locks there are below the key.
func TestRecordBesideAMutexAndLocksBelow(t *testing.T) {
	t.Parallel()
	b, key := newBackend(t, shared(t)), newKey(t)
	leases := []driver.Lease{taken(t, b, attempt(key, "A:1"))}
	for i := range enough {
		leases = append(leases, taken(t, b, attempt(key+"/"+strconv.Itoa(i), newID("A"))))
	}
	fair := attempt(key, "B:1")
	fair.Mode.Kind = driver.Fair
	_, err := b.Acquire(t.Context(), fair)
	require.ErrorIs(t, err, driver.ErrConflict)
	released(t, leases[0])
	leases[0] = taken(t, b, fair)
	for _, l := range leases {
		released(t, l)
	}
}

// Nor does it stay where the answer is lost that says so.
func TestRecordBesideAMutexAndALostReply(t *testing.T) {
	t.Parallel()
	b, f, key := torn(t)
	leases := []driver.Lease{taken(t, b, attempt(key, "A:1"))}
	for i := range enough {
		leases = append(leases, taken(t, b, attempt(key+"/"+strconv.Itoa(i), newID("A"))))
	}
	f.lose(1, func(req any) bool { return writes(key)(req) && len(req.(*pb.TxnRequest).Compare) == 1 })
	fair := attempt(key, "B:1")
	fair.Mode.Kind = driver.Fair
	_, err := b.Acquire(t.Context(), fair)
	require.ErrorIs(t, err, driver.ErrConflict)
	require.True(t, fair.MayHaveRun)
	for _, l := range leases {
		released(t, l)
	}
	nothingLeft(t, b.client, key)
}

// Nor is it left to who has come to it meanwhile.
func TestRecordBesideAMutexAndOneThatComes(t *testing.T) {
	t.Parallel()
	other, key := newBackend(t, shared(t)), newKey(t)
	leases := []driver.Lease{taken(t, other, attempt(key, "A:1"))}
	for i := range enough {
		leases = append(leases, taken(t, other, attempt(key+"/"+strconv.Itoa(i), newID("A"))))
	}
	one, two := attempt(key, "B:1"), attempt(key, "C:1")
	one.Mode.Kind, two.Mode.Kind = driver.Fair, driver.Fair
	came := false
	between := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
		err := invoke(ctx, method, req, reply, cc, options...)
		if !came && writes(key)(req) && len(req.(*pb.TxnRequest).Compare) == 1 {
			came = true
			requireHeld(t, other, two)
		}
		return err
	}
	b := newBackend(t, shared(t), func(c *clientv3.Config) {
		c.DialOptions = append(c.DialOptions, grpc.WithChainUnaryInterceptor(between))
	})
	_, err := b.Acquire(t.Context(), one)
	require.ErrorIs(t, err, driver.ErrConflict)
	require.NoError(t, b.Undo(t.Context(), one))
	_, err = other.Acquire(t.Context(), two)
	require.ErrorIs(t, err, driver.ErrConflict)
	for _, l := range leases {
		released(t, l)
	}
	require.NoError(t, other.Undo(t.Context(), two))
	nothingLeft(t, other.client, key)
}

// It is also refused where the mutex comes just before it is written.
func TestRecordBesideAMutexThatComes(t *testing.T) {
	t.Parallel()
	other, key := newBackend(t, shared(t)), newKey(t)
	leases := []driver.Lease{taken(t, other, attempt(key+"/0", "A:1"))}
	looked := false
	between := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
		err := invoke(ctx, method, req, reply, cc, options...)
		if !looked && writes(key)(req) {
			looked = true
			leases = append(leases, taken(t, other, attempt(key, "A:2")))
		}
		return err
	}
	b := newBackend(t, shared(t), func(c *clientv3.Config) {
		c.DialOptions = append(c.DialOptions, grpc.WithChainUnaryInterceptor(between))
	})
	fair := attempt(key, "B:1")
	fair.Mode.Kind = driver.Fair
	_, err := b.Acquire(t.Context(), fair)
	require.ErrorIs(t, err, driver.ErrConflict)
	for _, l := range leases {
		released(t, l)
	}
}

// It waits for no lock below it, however often these come and go.
func TestRecordBesideLocksBelowThatCome(t *testing.T) {
	t.Parallel()
	other, key := newBackend(t, shared(t)), newKey(t)
	leases := []driver.Lease{taken(t, other, attempt(key+"/0", newID("A")))}
	between := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
		err := invoke(ctx, method, req, reply, cc, options...)
		if writes(key)(req) && len(leases) < 20 {
			leases = append(leases, taken(t, other, attempt(key+"/"+strconv.Itoa(len(leases)), newID("A"))))
		}
		return err
	}
	b := newBackend(t, shared(t), func(c *clientv3.Config) {
		c.DialOptions = append(c.DialOptions, grpc.WithChainUnaryInterceptor(between))
	})
	fair := attempt(key, "B:1")
	fair.Mode.Kind = driver.Fair
	l := taken(t, b, fair)
	require.LessOrEqual(t, len(leases), 4)
	for _, l := range append(leases, l) {
		released(t, l)
	}
}
