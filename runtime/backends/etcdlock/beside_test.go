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

// fairly is attempt at a fair lock.
func fairly(key, id string) *driver.Acquisition {
	a := attempt(key, id)
	a.Mode.Kind = driver.Fair
	return a
}

// mutexAndLocksBelow takes the mutex of key, and so many locks below it that a first look does not
// see that. It returns the mutex first.
func mutexAndLocksBelow(t testing.TB, b *Backend, key string) []driver.Lease {
	leases := []driver.Lease{taken(t, b, attempt(key, newID("A")))}
	for i := range readLimit {
		leases = append(leases, taken(t, b, attempt(key+"/"+strconv.Itoa(i), newID("A"))))
	}
	return leases
}

// A record is refused where a mutex is, however many locks there are below the key.
func TestRecordBesideAMutexAndLocksBelow(t *testing.T) {
	t.Parallel()
	b, key := newBackend(t, shared(t)), newKey(t)
	leases := mutexAndLocksBelow(t, b, key)
	fair := fairly(key, "B:1")
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
	leases := mutexAndLocksBelow(t, b, key)
	f.lose(1, func(req any) bool { return writes(key)(req) && len(req.(*pb.TxnRequest).Compare) == 1 })
	fair := fairly(key, "B:1")
	_, err := b.Acquire(t.Context(), fair)
	require.ErrorIs(t, err, driver.ErrConflict)
	require.True(t, fair.MayHaveRun)
	for _, l := range leases {
		released(t, l)
	}
	nothingLeft(t, b.client, key)
}

// Whoever comes to it meanwhile is refused as well.
func TestRecordBesideAMutexAndOneThatComes(t *testing.T) {
	t.Parallel()
	other, key := newBackend(t, shared(t)), newKey(t)
	leases := mutexAndLocksBelow(t, other, key)
	one, two := fairly(key, "B:1"), fairly(key, "C:1")
	came := false
	between := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
		err := invoke(ctx, method, req, reply, cc, options...)
		if !came && writes(key)(req) && len(req.(*pb.TxnRequest).Compare) == 1 {
			came = true
			_, err := other.Acquire(t.Context(), two)
			require.ErrorIs(t, err, driver.ErrConflict)
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
	fair := fairly(key, "B:1")
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
	fair := fairly(key, "B:1")
	l := taken(t, b, fair)
	require.LessOrEqual(t, len(leases), 4)
	for _, l := range append(leases, l) {
		released(t, l)
	}
}

// What is late of a record that was given up beside a mutex takes nothing from who has come since.
func TestRecordIsGivenUpLate(t *testing.T) {
	t.Parallel()
	b, f, key := torn(t)
	other, third := newBackend(t, shared(t)), newBackend(t, shared(t))
	leases := mutexAndLocksBelow(t, other, key)
	late := f.late(deletes(key))
	one := fairly(key, newID("B"))
	_, err := b.Acquire(until(t, late.arrived), one)
	require.Error(t, err)
	require.True(t, one.MayHaveRun)
	released(t, leases[0])
	require.NoError(t, b.Undo(t.Context(), one))
	held := taken(t, other, fairly(key, newID("C")))
	require.NoError(t, late.arrives(t))
	requireHeld(t, third, fairly(key, newID("D")))
	require.NoError(t, held.Renew(t.Context(), held.Deadline().Left()))
	for _, l := range append(leases[1:], held) {
		released(t, l)
	}
}

// Whoever is refused beside a mutex leaves the tombstone of an undo where it is.
func TestTombstoneBesideAMutex(t *testing.T) {
	t.Parallel()
	b, f, key := torn(t)
	other, third := newBackend(t, shared(t)), newBackend(t, shared(t))
	leases := mutexAndLocksBelow(t, other, key)
	late := f.late(func(req any) bool { return writes(key)(req) && len(req.(*pb.TxnRequest).Compare) == 1 })
	one := fairly(key, newID("B"))
	_, err := b.Acquire(until(t, late.arrived), one)
	require.Error(t, err)
	require.NoError(t, b.Undo(t.Context(), one))
	_, err = third.Acquire(t.Context(), fairly(key, newID("C")))
	require.ErrorIs(t, err, driver.ErrConflict)
	for _, l := range leases {
		released(t, l)
	}
	before, _ := below(t, b.client, key)
	require.NoError(t, late.arrives(t))
	after, _ := below(t, b.client, key)
	require.Equal(t, before, after)
	released(t, taken(t, third, fairly(key, newID("C"))))
}

// An undo that leaves a tombstone beside a mutex lets nobody in there, of its process or another.
func TestFairBesideAMutexAfterAnUndo(t *testing.T) {
	t.Parallel()
	b, f, key := torn(t)
	other := newBackend(t, shared(t))
	mutex := taken(t, other, attempt(key, "A:1"))
	f.lose(1, writes(key))
	one := fairly(key, newID("B"))
	_, err := b.Acquire(t.Context(), one)
	require.ErrorIs(t, err, driver.ErrConflict)
	require.True(t, one.MayHaveRun)
	require.NoError(t, b.Undo(t.Context(), one))
	for _, next := range []*Backend{b, other, newBackend(t, shared(t))} {
		a := fairly(key, newID("C"))
		_, err = next.Acquire(t.Context(), a)
		require.ErrorIs(t, err, driver.ErrConflict)
		require.False(t, a.MayHaveRun)
	}
	released(t, mutex)
	held := taken(t, other, fairly(key, newID("C")))
	requireHeld(t, b, fairly(key, newID("B")))
	released(t, held)
}

// What takes nothing reads no keys below.
func TestUndoReadsTheRecordAlone(t *testing.T) {
	t.Parallel()
	var read []*pb.RangeRequest
	reads := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
		if txn, ok := req.(*pb.TxnRequest); ok {
			for _, op := range append(txn.Success, txn.Failure...) {
				if r := op.GetRequestRange(); r != nil {
					read = append(read, r)
				}
			}
		}
		return invoke(ctx, method, req, reply, cc, options...)
	}
	b, key := newBackend(t, shared(t), func(c *clientv3.Config) {
		c.DialOptions = append(c.DialOptions, grpc.WithChainUnaryInterceptor(reads))
	}), newKey(t)
	leases := mutexAndLocksBelow(t, newBackend(t, shared(t)), key)
	a := fairly(key, newID("B"))
	a.MayHaveRun = true
	require.NoError(t, b.Undo(t.Context(), a))
	require.NotEmpty(t, read)
	for _, r := range read {
		require.Equal(t, recordOf(key), string(r.Key))
		require.Empty(t, r.RangeEnd)
	}
	read = nil
	_, err := b.Acquire(t.Context(), fairly(key, newID("B")))
	require.ErrorIs(t, err, driver.ErrConflict)
	for _, r := range read {
		require.True(t, r.KeysOnly || len(r.RangeEnd) == 0, "values of others")
	}
	for _, l := range leases {
		released(t, l)
	}
}
