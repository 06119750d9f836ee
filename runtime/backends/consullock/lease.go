package consullock

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
	"github.com/lockgen/lockgen/runtime/internal/record"
)

// checkedAtOnce is how many locks one transaction looks at. Every version of Consul takes so many.
const checkedAtOnce = 64

// lease implements [driver.Lease].
type lease struct {
	*engine.Lease
	backend *Backend
	session *session
	pair    atomic.Pointer[api.KVPair] // the lock as it was at the server last
}

// Renew implements [driver.Lease].
func (l *lease) Renew(ctx context.Context, ttl time.Duration) error {
	return l.backend.RenewAll(ctx, []driver.Lease{l}, []time.Duration{ttl})[0]
}

// RenewAll implements [driver.BatchRenewer]. A lease lasts as long as its session, which is kept
// alive for all of its leases. Then it reads the locks, many at a time: an operator may have
// deleted one.
func (b *Backend) RenewAll(ctx context.Context, leases []driver.Lease, ttls []time.Duration) []error {
	return record.RenewAll(ctx, leases, ttls, b.renewMutexes)
}

func (b *Backend) renewMutexes(ctx context.Context, leases []driver.Lease, ttls []time.Duration) []error {
	errs := make([]error, len(leases))
	now := driver.Now()
	var renewed []int
	for i, ttl := range ttls {
		l := leases[i].(*lease)
		if errs[i] = l.session.Await(ctx, ttl); errs[i] != nil {
			continue
		}
		if errs[i] = l.Extend(now.Add(ttl)); errs[i] != nil {
			l.CloseAndUndo()
			continue
		}
		renewed = append(renewed, i)
	}
	for some := range slices.Chunk(renewed, checkedAtOnce) {
		b.verify(ctx, leases, some, errs)
	}
	return errs
}

// verify sets the errors of those leases that no longer hold their keys. It is no failure if the
// server does not answer: the leases are renewed, and verified with the next renewal.
func (b *Backend) verify(ctx context.Context, leases []driver.Lease, some []int, errs []error) {
	var t ops
	for _, i := range some {
		p := leases[i].(*lease).pair.Load()
		t = append(t, unchanged(p.Key, p.ModifyIndex))
	}
	_, moved, err := b.read(ctx, t)
	if err != nil {
		return
	}
	for _, e := range moved {
		i := some[e.OpIndex]
		l := leases[i].(*lease)
		if err := l.refresh(ctx); errors.Is(err, driver.ErrLost) {
			errs[i] = err
			l.CloseAndUndo()
		}
	}
}

// refresh reads the lock, to which somebody may have written, and notes its indexes. The error is
// driver.ErrLost if this lease no longer holds it.
func (l *lease) refresh(ctx context.Context) error {
	v, err := l.backend.readLock(ctx, l.Acquisition.Key)
	if err != nil {
		return err
	}
	p, was := v.pair, l.pair.Load()
	// An acquire writes an id of its own. A plain write leaves the lock to its
	// session, and sets LockIndex to 0.
	if p == nil || p.Session != was.Session || p.CreateIndex != was.CreateIndex ||
		p.LockIndex != 0 && string(p.Value) != l.Acquisition.ID {
		return driver.ErrLost
	}
	l.pair.Store(p)
	return nil
}

// Release implements [driver.Lease].
func (l *lease) Release(ctx context.Context, _ uint64) error {
	return l.ReleaseBy(ctx, func(ctx context.Context) (had, mayHaveRun bool, err error) {
		if l.Acquisition.MayHaveRun {
			if err := l.backend.putTombstone(ctx, l.Acquisition.ID); err != nil {
				return false, false, err
			}
		}
		mayHaveRun, err = resend(ctx, l.free)
		if errors.Is(err, driver.ErrLost) {
			return false, mayHaveRun, nil
		}
		return true, mayHaveRun, err
	})
}

// free frees the lock, and remembers whether others wait for it.
func (l *lease) free(ctx context.Context) error {
	for {
		r, err := l.backend.write(ctx, append(freeOps(l.pair.Load()), kv(api.KVGetTree, api.KVTxnOp{Key: queuePrefix(l.Acquisition.Key)})))
		if err == nil {
			l.backend.rememberQueue(l.Acquisition.Key, r)
		}
		if !errors.Is(err, errChanged) {
			return err
		}
		if err = l.refresh(ctx); err != nil {
			return err
		}
	}
}
