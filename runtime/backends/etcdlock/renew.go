package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/lockgen/lockgen/runtime/driver"
)

// batch is how many keys one request asks after: etcd takes 128 at most, unless
// it is told otherwise.
const batch = 100

// batchesAtOnce is how many such requests are under way at a time.
const batchesAtOnce = 16

var errOver = fmt.Errorf("%w: its lease was over", driver.ErrLost)

// RenewAll implements [driver.BatchRenewer]. That the session is kept alive does
// not say that a key is still there: someone may have deleted it. So one request
// asks, for a hundred leases, whether all their keys are the ones that were acquired.
func (b *Backend) RenewAll(ctx context.Context, leases []driver.Lease, ttls []time.Duration) []error {
	errs := make([]error, len(leases))
	var all sync.WaitGroup
	room := make(chan struct{}, batchesAtOnce)
	for first := 0; first < len(leases); first += batch {
		end := min(first+batch, len(leases))
		some := make([]*lease, end-first)
		for i := range some {
			some[i] = leases[first+i].(*lease)
		}
		room <- struct{}{}
		all.Go(func() {
			b.renew(ctx, some, ttls[first:end], errs[first:end])
			<-room
		})
	}
	all.Wait()
	return errs
}

// renew renews a batch.
func (b *Backend) renew(ctx context.Context, leases []*lease, ttls []time.Duration, errs []error) {
	t := &pb.TxnRequest{}
	for _, l := range leases {
		key := l.keys.prefix + l.session.suffix
		t.Compare = append(t.Compare, ifCreated(key, l.created))
		keysOnly := one(key)
		keysOnly.KeysOnly = true
		t.Failure = append(t.Failure, get(keysOnly))
	}
	resp, r, err := b.txn(ctx, t)
	if len(leases) > 1 && errors.Is(err, rpctypes.ErrPermissionDenied) {
		b.halve(ctx, leases, ttls, errs)
		return
	}
	for i, l := range leases {
		switch {
		case err != nil:
			errs[i] = err
		case !resp.Succeeded && !l.among(resp, i):
			errs[i] = fmt.Errorf("%w: its key is gone", driver.ErrLost)
			l.disown()
		case l.over():
			errs[i] = errOver
		default:
			// The session is kept alive by itself. Only if that is behind does it matter here.
			errs[i] = l.session.freshen(ctx, ttls[i]/2)
			if errs[i] == nil && !l.extend(r.sent.Add(ttls[i])) {
				errs[i] = errOver
			}
		}
	}
}

// halve renews each half of a batch by itself: the whole is refused for a single key on
// which a right has ended, and the others are to be renewed all the same.
func (b *Backend) halve(ctx context.Context, leases []*lease, ttls []time.Duration, errs []error) {
	half := len(leases) / 2
	var other sync.WaitGroup
	other.Go(func() { b.renew(ctx, leases[:half], ttls[:half], errs[:half]) })
	b.renew(ctx, leases[half:], ttls[half:], errs[half:])
	other.Wait()
}

// among reports whether the i-th key that was asked after is still l's.
func (l *lease) among(resp *pb.TxnResponse, i int) bool {
	kvs := found(resp, i)
	return len(kvs) == 1 && kvs[0].CreateRevision == l.created
}
