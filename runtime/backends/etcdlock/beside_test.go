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

// fairAttempt is like attempt, for a fair lock.
func fairAttempt(key, id string) *driver.Acquisition {
	a := attempt(key, id)
	a.Mode.Kind = driver.Fair
	return a
}

// mutexAndLocksBelow takes the mutex of key, and so many locks below key that a first read does not
// find the mutex. It returns the mutex's lease first.
func mutexAndLocksBelow(t testing.TB, b *Backend, key string) []driver.Lease {
	leases := []driver.Lease{taken(t, b, attempt(key, newID("A")))}
	for i := range readLimit {
		leases = append(leases, taken(t, b, attempt(key+"/"+strconv.Itoa(i), newID("A"))))
	}
	return leases
}

// A record is refused while a mutex is at its key, however many locks there are below the key.
func TestRecordBesideAMutexAndLocksBelow(t *testing.T) {
	t.Parallel()
	b, key := newBackend(t, shared(t)), newKey(t)
	leases := mutexAndLocksBelow(t, b, key)
	fair := fairAttempt(key, "B:1")
	_, err := b.Acquire(t.Context(), fair)
	require.ErrorIs(t, err, driver.ErrConflict)
	released(t, leases[0])
	leases[0] = taken(t, b, fair)
	for _, l := range leases {
		released(t, l)
	}
}

// A record does not stay if the answer is lost that reports the mutex.
func TestRecordBesideAMutexAndALostReply(t *testing.T) {
	t.Parallel()
	b, f, key := faulty(t)
	leases := mutexAndLocksBelow(t, b, key)
	f.lose(1, func(req any) bool { return writes(key)(req) && len(req.(*pb.TxnRequest).Compare) == 1 })
	fair := fairAttempt(key, "B:1")
	_, err := b.Acquire(t.Context(), fair)
	require.ErrorIs(t, err, driver.ErrConflict)
	require.True(t, fair.MayHaveRun)
	for _, l := range leases {
		released(t, l)
	}
	nothingLeft(t, b.client, key)
}

// A second acquisition that finds the record before it is deleted is refused too.
func TestRecordBesideAMutexAndOneThatComes(t *testing.T) {
	t.Parallel()
	other, key := newBackend(t, shared(t)), newKey(t)
	leases := mutexAndLocksBelow(t, other, key)
	one, two := fairAttempt(key, "B:1"), fairAttempt(key, "C:1")
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

// A record is also refused if the mutex is taken just before the record is written.
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
	fair := fairAttempt(key, "B:1")
	_, err := b.Acquire(t.Context(), fair)
	require.ErrorIs(t, err, driver.ErrConflict)
	for _, l := range leases {
		released(t, l)
	}
}

// A record does not wait for locks below its key, however often they are taken and released.
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
	fair := fairAttempt(key, "B:1")
	l := taken(t, b, fair)
	require.LessOrEqual(t, len(leases), 4)
	for _, l := range append(leases, l) {
		released(t, l)
	}
}

// A record was given up because of a mutex. A late request of it does not end the lock of a later holder.
func TestRecordIsGivenUpLate(t *testing.T) {
	t.Parallel()
	b, f, key := faulty(t)
	other, third := newBackend(t, shared(t)), newBackend(t, shared(t))
	leases := mutexAndLocksBelow(t, other, key)
	late := f.late(deletes(key))
	one := fairAttempt(key, newID("B"))
	_, err := b.Acquire(until(t, late.arrived), one)
	require.Error(t, err)
	require.True(t, one.MayHaveRun)
	released(t, leases[0])
	require.NoError(t, b.Undo(t.Context(), one))
	held := taken(t, other, fairAttempt(key, newID("C")))
	require.NoError(t, late.arrives(t))
	requireHeld(t, third, fairAttempt(key, newID("D")))
	require.NoError(t, held.Renew(t.Context(), held.Deadline().Left()))
	for _, l := range append(leases[1:], held) {
		released(t, l)
	}
}

// An acquisition that is refused because of a mutex does not delete the tombstone of an undo.
func TestTombstoneBesideAMutex(t *testing.T) {
	t.Parallel()
	b, f, key := faulty(t)
	other, third := newBackend(t, shared(t)), newBackend(t, shared(t))
	leases := mutexAndLocksBelow(t, other, key)
	late := f.late(func(req any) bool { return writes(key)(req) && len(req.(*pb.TxnRequest).Compare) == 1 })
	one := fairAttempt(key, newID("B"))
	_, err := b.Acquire(until(t, late.arrived), one)
	require.Error(t, err)
	require.NoError(t, b.Undo(t.Context(), one))
	_, err = third.Acquire(t.Context(), fairAttempt(key, newID("C")))
	require.ErrorIs(t, err, driver.ErrConflict)
	for _, l := range leases {
		released(t, l)
	}
	before, _ := below(t, b.client, key)
	require.NoError(t, late.arrives(t))
	after, _ := below(t, b.client, key)
	require.Equal(t, before, after)
	released(t, taken(t, third, fairAttempt(key, newID("C"))))
}

// An undo has left a tombstone while a mutex is held. Fair locks of its process and of others are still refused.
func TestFairBesideAMutexAfterAnUndo(t *testing.T) {
	t.Parallel()
	b, f, key := faulty(t)
	other := newBackend(t, shared(t))
	mutex := taken(t, other, attempt(key, "A:1"))
	f.lose(1, writes(key))
	one := fairAttempt(key, newID("B"))
	_, err := b.Acquire(t.Context(), one)
	require.ErrorIs(t, err, driver.ErrConflict)
	require.True(t, one.MayHaveRun)
	require.NoError(t, b.Undo(t.Context(), one))
	for _, next := range []*Backend{b, other, newBackend(t, shared(t))} {
		a := fairAttempt(key, newID("C"))
		_, err = next.Acquire(t.Context(), a)
		require.ErrorIs(t, err, driver.ErrConflict)
		require.False(t, a.MayHaveRun)
	}
	released(t, mutex)
	held := taken(t, other, fairAttempt(key, newID("C")))
	requireHeld(t, b, fairAttempt(key, newID("B")))
	released(t, held)
}

// A request that takes nothing does not read the keys below.
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
	a := fairAttempt(key, newID("B"))
	a.MayHaveRun = true
	require.NoError(t, b.Undo(t.Context(), a))
	require.NotEmpty(t, read)
	for _, r := range read {
		require.Equal(t, recordOf(key), string(r.Key))
		require.Empty(t, r.RangeEnd)
	}
	read = nil
	_, err := b.Acquire(t.Context(), fairAttempt(key, newID("B")))
	require.ErrorIs(t, err, driver.ErrConflict)
	for _, r := range read {
		require.True(t, r.KeysOnly || len(r.RangeEnd) == 0, "the values of others must not be read")
	}
	for _, l := range leases {
		released(t, l)
	}
}
