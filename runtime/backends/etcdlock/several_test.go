package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockgen/lockgen/internal/testserver"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
)

// several returns requests for n keys, in the order in which they are taken.
func several(key string, n int) []lock.Request {
	reqs := make([]lock.Request, n)
	for i := range reqs {
		reqs[i] = lock.Request{Key: fmt.Sprintf("%s:%04d", key, i)}
	}
	return reqs
}

// attempts returns attempts at n keys, one ID each.
func attempts(key, locker string, n int) []*driver.Acquisition {
	as := make([]*driver.Acquisition, n)
	for i, r := range several(key, n) {
		as[i] = asTry(attempt(r.Key, newID(locker)))
	}
	return as
}

// heldKeys returns how many of the locks of several(key, n) are at the server.
func heldKeys(t testing.TB, c *clientv3.Client, key string) int {
	keys, _ := below(t, c, key+":")
	n := 0
	for _, k := range keys {
		if !strings.Contains(k, "lockgen") {
			n++
		}
	}
	return n
}

func noneIsHeld(t testing.TB, c *clientv3.Client, key string) {
	t.Helper()
	eventually(t, "no lock is held", func() bool { return heldKeys(t, c, key) == 0 })
}

// jointFor matches a transaction for several locks that include the lock at key.
func jointFor(key string) match {
	return func(req any) bool {
		t, ok := req.(*pb.TxnRequest)
		for _, op := range t.GetSuccess() {
			if nested := op.GetRequestTxn(); ok && nested != nil && strings.HasPrefix(string(nested.Compare[0].Key), key+"/") {
				return true
			}
		}
		return false
	}
}

// A thousand keys are taken in ten transactions of a hundred keys each, and freed in ten.
func TestAThousandKeys(t *testing.T) {
	t.Parallel()
	b, f, key := faulty(t)
	b.options.AttemptTimeout = soon
	leases, errs := b.AcquireAll(t.Context(), attempts(key, "A", 1000))
	require.NoError(t, errors.Join(errs...))
	took := f.count("Txn") + f.count("Range")
	require.Equal(t, 1000, heldKeys(t, b.client, key))
	f.reset()
	require.NoError(t, errors.Join(b.ReleaseAll(t.Context(), leases, make([]uint64, len(leases)))...))
	freed := f.count("Txn") + f.count("Range")
	t.Logf("%d transactions to take the locks, %d to free them", took, freed)
	require.Equal(t, []int{10, 10}, []int{took, freed})
	require.Zero(t, heldKeys(t, b.client, key))
}

// The tokens of each key rise, whether it is taken alone or with others.
func TestTokensOfSeveral(t *testing.T) {
	t.Parallel()
	b, key := newBackend(t, shared(t)), newKey(t)
	last := make([]uint64, 3)
	for range 3 {
		leases, errs := b.AcquireAll(t.Context(), attempts(key, "A", len(last)))
		require.NoError(t, errors.Join(errs...))
		for i, l := range leases {
			require.Greater(t, first(l), last[i])
			last[i] = first(l)
		}
		require.NoError(t, errors.Join(b.ReleaseAll(t.Context(), leases, last)...))
		alone := taken(t, b, attempt(several(key, 1)[0].Key, newID("B")))
		require.Greater(t, first(alone), last[0])
		last[0] = first(alone)
		released(t, alone)
	}
}

// All or none: one of a thousand keys is held elsewhere. Meanwhile the call holds no key behind it, and
// when the caller gives up, the call holds none at all.
func TestOneOfAThousandIsHeld(t *testing.T) {
	t.Parallel()
	c, key := admin(t, shared(t)), newKey(t)
	l, reqs := lockerOn(t, New(newClient(t, []string{shared(t)}), Options{AttemptTimeout: soon})), several(key, 1000)
	_, theirs := acquire(t, newLocker(t, shared(t)), nil, reqs[500].Key)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, _, err := l.AcquireAll(ctx, reqs...)
		done <- err
	}()
	queued(t, c, reqs[500].Key, 2)
	eventually(t, "the call holds the keys before that one, and no more", func() bool { return heldKeys(t, c, key) == 502 })
	cancel()
	err := receive(t, "the end of the wait", done)
	require.ErrorIs(t, err, lock.ErrNotAcquired)
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, finish(theirs))
	noneIsHeld(t, c, key)
}

// S12, S16: the reply to a transaction is lost. The transaction is sent again, and each lock is held once.
func TestLostReplyForSeveral(t *testing.T) {
	t.Parallel()
	b, f, key := faulty(t)
	b.options.AttemptTimeout = soon
	as := attempts(key, "A", 250)
	f.lose(1, jointFor(as[120].Key))
	leases, errs := b.AcquireAll(t.Context(), as)
	require.NoError(t, errors.Join(errs...))
	require.Equal(t, 3+1+batchSize, f.count("Txn"))
	require.Equal(t, len(as), heldKeys(t, b.client, key))
	for i, a := range as {
		require.Equal(t, i/batchSize == 1, a.MayHaveRun)
	}
	f.lose(1, jointFor(as[120].Key))
	require.NoError(t, errors.Join(b.ReleaseAll(t.Context(), leases, make([]uint64, len(leases)))...))
	noneIsHeld(t, b.client, key)
	for _, err := range b.ReleaseAll(t.Context(), leases, make([]uint64, len(leases))) {
		require.ErrorIs(t, err, lock.ErrLost)
	}
}

// An attempt is repeated. It finds its own key, with a later contender behind it, and holds
// the lock.
func TestAttemptAgainBeforeAnother(t *testing.T) {
	t.Parallel()
	b, f, key := faulty(t)
	released(t, taken(t, b, attempt(newKey(t), "A:0"))) // creates a session
	a := attempt(key, "A:1")
	_, err := b.Acquire(until(t, f.lose(100, writes(key))), a)
	require.ErrorIs(t, err, lock.ErrIndeterminate)
	other, later := newBackend(t, shared(t)), attempt(key, "B:1")
	requireHeld(t, other, later)
	f.heal()
	lease := taken(t, b, a)
	released(t, lease)
	eventually(t, "the later contender gets the lock", func() bool {
		l, err := other.Acquire(t.Context(), later)
		return err == nil && l.Release(t.Context(), 0) == nil
	})
}

// S14: all replies are lost. The locks that were taken are undone.
func TestNoReplyForSeveral(t *testing.T) {
	t.Parallel()
	f, key, c := &faults{}, newKey(t), admin(t, shared(t))
	l := lockerOn(t, New(newClient(t, []string{shared(t)}, withFaults(f))))
	_, held := acquire(t, l, nil, newKey(t)) // creates a session
	require.NoError(t, finish(held))
	reqs := several(key, 250)
	_, _, err := l.AcquireAll(until(t, f.lose(100, jointFor(reqs[0].Key))), reqs...)
	require.ErrorIs(t, err, lock.ErrIndeterminate)
	noneIsHeld(t, c, key)
	f.heal()
	_, held, err = newLocker(t, shared(t)).AcquireAll(t.Context(), reqs...)
	require.NoError(t, err)
	require.NoError(t, finish(held))
}

// S15: the undos overtake the transaction. It finds that each acquisition was undone.
func TestUndoOvertakesSeveral(t *testing.T) {
	t.Parallel()
	b, f, key := faulty(t)
	released(t, taken(t, b, attempt(newKey(t), "A:0"))) // creates a session
	as := attempts(key, "A", 3)
	late := f.late(jointFor(as[0].Key))
	_, errs := b.AcquireAll(until(t, late.arrived), as)
	for i, a := range as {
		require.ErrorIs(t, errs[i], lock.ErrIndeterminate)
		require.NoError(t, b.Undo(t.Context(), a))
	}
	require.NoError(t, late.arrives(t))
	require.Zero(t, heldKeys(t, b.client, key))
}

// An error of one key does not affect the others.
func TestSeveralWithAWrongOne(t *testing.T) {
	t.Parallel()
	b, key := newBackend(t, shared(t)), newKey(t)
	as := attempts(key, "A", 5)
	wrong := [...]error{nil, driver.ErrInvalid, driver.ErrConflict, driver.ErrInvalid, nil}
	as[1].Key = ""
	_, err := b.client.Put(t.Context(), as[2].Key+"/x", "not a lock")
	require.NoError(t, err)
	as[3].TTL = maxTTL + 1
	leases, errs := b.AcquireAll(t.Context(), as)
	for i, want := range wrong {
		require.ErrorIs(t, errs[i], want)
		require.Equal(t, want == nil, leases[i] != nil)
	}
	good := []driver.Lease{leases[0], leases[4]}
	require.NoError(t, errors.Join(b.ReleaseAll(t.Context(), good, []uint64{0, 0})...))
}

// The session for several locks has been revoked. The locks are taken in another session.
func TestSeveralInASessionThatEnded(t *testing.T) {
	t.Parallel()
	b, key := newBackend(t, shared(t)), newKey(t)
	kept := taken(t, b, attempt(newKey(t), "A:0")).(*lease)
	_, err := b.client.Revoke(t.Context(), clientv3.LeaseID(kept.session.id))
	require.NoError(t, err)
	leases, errs := b.AcquireAll(t.Context(), attempts(key, "A", 3))
	require.NoError(t, errors.Join(errs...))

	// One of the locks to be freed is lost. The others are not.
	other := taken(t, b, attempt(newKey(t), "B:1")).(*lease)
	_, err = b.client.Revoke(t.Context(), clientv3.LeaseID(other.session.id))
	require.NoError(t, err)
	other.Acquisition.MayHaveRun = true // then its release needs the session
	errs = b.ReleaseAll(t.Context(), append(leases, other), make([]uint64, 4))
	require.NoError(t, errors.Join(errs[:3]...))
	require.ErrorIs(t, errs[3], lock.ErrLost)
	noneIsHeld(t, b.client, key)
}

// The user has no right to one of several keys, and the server does not check the rights in
// nested transactions.
func TestSeveralWithoutARight(t *testing.T) {
	t.Parallel()
	server := testserver.StartEtcd(t, "--bcrypt-cost", "4")
	root, ctx := newClient(t, []string{server.Addr()}), t.Context()
	for _, user := range []string{"root", "service"} {
		_, err := root.UserAdd(ctx, user, "pw")
		require.NoError(t, err)
	}
	_, err := root.UserGrantRole(ctx, "root", "root")
	require.NoError(t, err)
	_, err = root.RoleAdd(ctx, "locks")
	require.NoError(t, err)
	_, err = root.RoleGrantPermission(ctx, "locks", "stock:", clientv3.GetPrefixRangeEnd("stock:"), clientv3.PermissionType(clientv3.PermReadWrite))
	require.NoError(t, err)
	_, err = root.UserGrantRole(ctx, "service", "locks")
	require.NoError(t, err)
	_, err = root.AuthEnable(ctx)
	require.NoError(t, err)

	b := newBackend(t, server.Addr(), func(c *clientv3.Config) { c.Username, c.Password, c.DialTimeout = "service", "pw", soon })
	as := attempts("stock", "A", 3)
	as[1].Key = "other:1"
	leases, errs := b.AcquireAll(ctx, as)
	require.NoError(t, errs[0])
	require.ErrorIs(t, errs[1], rpctypes.ErrPermissionDenied)
	require.NoError(t, errs[2])
	released(t, leases[0])
	released(t, leases[2])
}

// A server accepts only few operations in a transaction. The Backend then sends smaller transactions.
func TestServerThatTakesFewOperations(t *testing.T) {
	t.Parallel()
	server := testserver.StartEtcd(t, "--max-txn-ops=16")
	b := newBackend(t, server.Addr())
	leases, errs := b.AcquireAll(t.Context(), attempts("key", "A", 40))
	require.NoError(t, errors.Join(errs...))
	ttls := slices.Repeat([]time.Duration{10 * time.Second}, len(leases))
	require.NoError(t, errors.Join(b.RenewAll(t.Context(), leases, ttls)...))
	require.NoError(t, errors.Join(b.ReleaseAll(t.Context(), leases, make([]uint64, len(leases)))...))
	require.Zero(t, heldKeys(t, b.client, "key"))
}
