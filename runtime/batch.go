package lock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// How several locks of one call are tried, and freed, at once. Only the commands are joint: each
// lock has its own entry, acquisition and lease, and whatever undoes one of them alone undoes it
// here.
//
//	free in this process -> busy with the key -> asked for with the others -> as compete leaves it
//	released -> its lease waits for those of the others -> freed in one call -> as before

// batches reports whether b takes many keys in few commands.
func batches(b driver.Backend) bool {
	_, ok := b.(driver.BatchAcquirer)
	return ok
}

// reserveAll reserves reqs, which are of one backend: those before the first that another call
// of this process holds or wants, for which err is why. Nobody waits for this call while it
// waits for somebody here.
func (l *Locker) reserveAll(ctx context.Context, reqs []Request, end time.Time) (ops []*acquireOp, err error) {
	for _, r := range reqs {
		op, err := l.reserve(ctx, r, end)
		if err != nil {
			return ops, err
		}
		ops = append(ops, op)
	}
	return ops, nil
}

// askAll asks the backend of ops for all of them at once.
func askAll(ops []*acquireOp) ([]driver.Lease, []error) {
	if len(ops) == 0 || ops[0].over() { // nothing needs to be sent
		return make([]driver.Lease, len(ops)), repeated(errHeld, len(ops))
	}
	as := make([]*driver.Acquisition, len(ops))
	for i, op := range ops {
		as[i] = op.acquisition
	}
	ctx, cancel := ops[0].bounded()
	defer cancel()
	return acquireAll(ctx, ops[0].entry.backend, as)
}

// acquireAll is driver.BatchAcquirer for any Backend. Of one that is none, goroutines ask for
// each of as, and those that come after one that failed may be left out.
func acquireAll(ctx context.Context, b driver.Backend, as []*driver.Acquisition) ([]driver.Lease, []error) {
	n := len(as)
	if together, ok := b.(driver.BatchAcquirer); ok {
		leases, errs := together.AcquireAll(ctx, as)
		if len(leases) == n && len(errs) == n {
			return leases, errs
		}
		return make([]driver.Lease, n), repeated(fmt.Errorf("%w: AcquireAll broke its contract: a lease or an error for each", ErrIndeterminate), n)
	}
	leases, errs := make([]driver.Lease, n), repeated(errHeld, n)
	var failed atomic.Int64 // the first that did
	failed.Store(int64(n))
	inParallel(n, atOnce(b), func(i int) {
		if failed.Load() < int64(i) {
			return
		}
		if leases[i], errs[i] = b.Acquire(ctx, as[i]); errs[i] == nil {
			return
		}
		for first := failed.Load(); int64(i) < first && !failed.CompareAndSwap(first, int64(i)); first = failed.Load() {
		}
	})
	return leases, errs
}

// reserve makes this goroutine the one that is busy with r's key, unless another call of
// this process holds or wants the key. Its acquisition is ready to be sent.
func (l *Locker) reserve(ctx context.Context, r Request, end time.Time) (*acquireOp, error) {
	s, err := l.admit(ctx, r.Key)
	if err != nil {
		return nil, err
	}
	h := &hold{locker: l, policy: r.Policy}
	s.mu.Lock()
	e, fresh := s.entryLocked(entryID{backend: r.Policy.Backend, key: r.Key}, r.Policy, l)
	s.mu.Unlock()
	if fresh == nil {
		l.leave(s)
		return nil, because(ErrNotAcquired, errHeld)
	}
	op := &acquireOp{locker: l, entry: e, hold: h, ctx: ctx, end: end, acquisition: &fresh.lease.acquisition, reserved: &fresh.lease}
	op.prepare()
	return op, nil
}

// conclude does with the answer to op what compete does.
func (l *Locker) conclude(op *acquireOp, lease driver.Lease, err error) error {
	e, h := op.entry, op.hold
	if err != nil {
		l.stopCompeting(op, err)
		err = op.explain(err)
	} else {
		var inTime bool
		if inTime, err = l.granted(e, h, op.reserved, lease); err == nil && !inTime {
			err = l.tooLate(e, h)
		}
	}
	if err != nil {
		l.leave(e.shard)
	}
	return err
}

// unused returns what gives lease, which op was granted, back: no hold begins on it.
func (op *acquireOp) unused(lease driver.Lease) *releasing {
	now := time.Now()
	op.reserved.init(lease, op.entry, 0, op.hold.policy, driver.At(now))
	return &releasing{hold: op.hold, lease: op.reserved, clock: now}
}

// joins reports whether the engine can free the leases of r and other together.
func (r *releasing) joins(other *releasing) bool {
	a, b := r.lease.entry.id, other.lease.entry.id
	return a.backend == b.backend && a.kind == b.kind
}

// freeAll has the engine free the leases of rs, which are of one backend and kind, and lets the
// next in the queues of their entries compete. Of a backend that is no driver.BatchReleaser,
// goroutines free them.
func freeAll(ctx context.Context, rs []*releasing) {
	l, e := rs[0].hold.locker, rs[0].lease.entry
	together, ok := e.backend.(driver.BatchReleaser)
	if !ok || e.id.kind != 0 || ctx == endedContext {
		most := atOnce(e.backend)
		if len(rs) <= handful || ctx == endedContext { // that one waits for nothing
			most = 1
		}
		inParallel(len(rs), most, func(i int) { rs[i].err = l.free(ctx, rs[i].lease, rs[i].clock) })
		return
	}
	leases, lasts := make([]driver.Lease, len(rs)), make([]uint64, len(rs))
	for i, r := range rs {
		leases[i], lasts[i] = r.lease.Lease, r.lease.token-1
	}
	errs := together.ReleaseAll(ctx, leases, lasts)
	if len(errs) != len(leases) {
		errs = repeated(errors.New("ReleaseAll broke its contract: one result for each lease"), len(leases))
	}
	for i, r := range rs {
		r.err = l.released(r.lease, errs[i])
		l.next(r.lease.entry)
	}
}
