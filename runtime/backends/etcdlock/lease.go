package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
	"github.com/lockgen/lockgen/runtime/internal/record"
)

const (
	// batchSize is how many keys one request is about: etcd takes 128 at most, unless it
	// is configured otherwise.
	batchSize = 100
	// batchesAtOnce is how many requests of a renewal are under way at a time.
	batchesAtOnce = 16
)

var errKeyGone = fmt.Errorf("%w: its key is gone", driver.ErrLost)

// lease implements [driver.Lease] by our key, which owns the lock.
type lease struct {
	*engine.Lease
	session *session
	key     string
	created int64       // its create revision
	wanted  atomic.Bool // another acquisition of its Locker waits behind it
}

func newLease(e *entry, s *session, a *driver.Acquisition, sent driver.Instant) *lease {
	l := &lease{session: s, key: e.keyIn(s), created: e.created}
	e.backend.mu.Lock()
	defer e.backend.mu.Unlock()
	l.Lease = s.NewLease(a, uint64(e.created), sent.Add(a.TTL), l.forget)
	e.backend.held[e.place] = l
	return l
}

// Renew implements [driver.Lease].
func (l *lease) Renew(ctx context.Context, ttl time.Duration) error {
	return l.session.backend.RenewAll(ctx, []driver.Lease{l}, []time.Duration{ttl})[0]
}

// RenewAll implements [driver.BatchRenewer]. Somebody may have deleted a key
// although the session is alive. So one request asks, for a hundred leases, whether all their
// keys are still the ones that were acquired.
func (b *Backend) RenewAll(ctx context.Context, leases []driver.Lease, ttls []time.Duration) []error {
	return record.RenewAll(ctx, leases, ttls, b.renewMutexes)
}

func (b *Backend) renewMutexes(ctx context.Context, leases []driver.Lease, ttls []time.Duration) []error {
	errs := make([]error, len(leases))
	inBatches(len(leases), func(first, end int) {
		b.renew(ctx, leases[first:end], ttls[first:end], errs[first:end])
	})
	return errs
}

// renew renews a batch. If etcd refuses the batch, it renews each half by itself: the right to one of
// the keys may have ended, or the server may take fewer operations than a batch has.
func (b *Backend) renew(ctx context.Context, leases []driver.Lease, ttls []time.Duration, errs []error) {
	t := &pb.TxnRequest{}
	for _, one := range leases {
		l := one.(*lease)
		t.Compare = append(t.Compare, ifCreated(l.key, l.created))
		t.Failure = append(t.Failure, get(&pb.RangeRequest{Key: []byte(l.key), KeysOnly: true}))
	}
	resp, r, err := b.txn(ctx, t)
	if half := len(leases) / 2; half > 0 && (errors.Is(err, rpctypes.ErrPermissionDenied) || errors.Is(err, rpctypes.ErrTooManyOps)) {
		b.renew(ctx, leases[:half], ttls[:half], errs[:half])
		b.renew(ctx, leases[half:], ttls[half:], errs[half:])
		return
	}
	for i, one := range leases {
		l := one.(*lease)
		isOurs := func(kv *mvccpb.KeyValue) bool { return kv.CreateRevision == l.created }
		switch {
		case err != nil:
			errs[i] = err
		case !resp.Succeeded && !slices.ContainsFunc(found(resp, i), isOurs):
			errs[i] = errKeyGone
			l.CloseAndUndo()
		default:
			errs[i] = l.extend(ctx, r.sent, ttls[i])
		}
	}
}

// extend renews the lease by a request that was sent at sent. It waits if the session, which is
// kept alive by itself, is behind.
func (l *lease) extend(ctx context.Context, sent driver.Instant, ttl time.Duration) error {
	lasts := ttl / 2
	if l.Acquisition.NoRenewal { // the lease needs its whole length ahead
		lasts = ttl
	}
	if err := l.session.Await(ctx, lasts); err != nil {
		return err
	}
	return l.Extend(sent.Add(ttl))
}

// Release implements [driver.Lease]. It deletes the key, if it is still the one that was
// acquired.
func (l *lease) Release(ctx context.Context, _ uint64) error {
	return l.ReleaseBy(ctx, func(ctx context.Context) (had, mayHaveRun bool, err error) {
		resp, r, err := l.session.backend.free(ctx, &l.Acquisition, ifCreated(l.key, l.created), del(l.key))
		return err == nil && resp.Succeeded, r.mayHaveRun, err
	})
}

// forget notes that the key is no longer ours.
func (l *lease) forget() {
	b := l.session.backend
	b.mu.Lock() // first, because a session that has ended may call forget while newLease still runs
	id := engine.PlaceOf(&l.Acquisition)
	if b.held[id] == l {
		delete(b.held, id)
	}
	b.mu.Unlock()
	if l.wanted.Load() {
		b.hub.Notify(id)
	}
}
