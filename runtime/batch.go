package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// What several locks of one call need of an engine that takes, and frees, many keys in few
// commands. Only the commands are joint: each lock has its own entry, acquisition and lease,
// and whatever undoes one of them alone undoes it here.
//
//	free in this process -> busy with the key -> asked for in one call -> as compete leaves it
//	released -> its lease waits for those of the others -> freed in one call -> as before

// batches reports whether b takes many keys in few commands.
func batches(b driver.Backend) bool {
	_, ok := b.(driver.BatchAcquirer)
	return ok
}

// tryInBatch is try for reqs of one backend, which b is. It asks for those before the first
// that another call of this process holds or wants: nobody waits for it while it waits for
// somebody here.
func (l *Locker) tryInBatch(ctx context.Context, b driver.BatchAcquirer, reqs []Request, ends []time.Time) []attempt {
	tried := make([]attempt, len(reqs))
	var ops []*acquireOp
	var as []*driver.Acquisition
	for i, r := range reqs {
		op, err := l.reserve(ctx, r, earliest(ends))
		if err != nil {
			tried[i].err = err
			break
		}
		op.prepare()
		ops, as = append(ops, op), append(as, op.acquisition)
	}
	if len(ops) == 0 {
		return tried
	}
	askCtx, cancel := ops[0].bounded()
	defer cancel()
	leases, errs := make([]driver.Lease, len(as)), repeated(errHeld, len(as))
	if !ops[0].over() { // else nothing needs to be sent
		leases, errs = b.AcquireAll(askCtx, as)
	}
	if len(leases) != len(as) || len(errs) != len(as) {
		leases = make([]driver.Lease, len(as))
		errs = repeated(fmt.Errorf("%w: AcquireAll broke its contract: a lease or an error for each", ErrIndeterminate), len(as))
	}
	for i, op := range ops {
		if errs[i] != nil {
			op.entry.heard(errs[i])
		}
		tried[i] = l.conclude(op, leases[i], errs[i])
	}
	return tried
}

// reserve makes this goroutine the one that is busy with r's key, unless another call of
// this process holds or wants the key. conclude must follow.
func (l *Locker) reserve(ctx context.Context, r Request, end time.Time) (*acquireOp, error) {
	s, err := l.admit(ctx, r.Key)
	if err != nil {
		return nil, err
	}
	h := &hold{locker: l, policy: r.Policy}
	h.trial.Store(int32(trying))
	s.mu.Lock()
	e, fresh := s.entryLocked(entryID{backend: r.Policy.Backend, key: r.Key}, r.Policy, l)
	s.mu.Unlock()
	if fresh == nil {
		l.leave(s)
		return nil, because(ErrNotAcquired, errHeld)
	}
	return &acquireOp{locker: l, entry: e, hold: h, ctx: ctx, end: end, acquisition: &fresh.lease.acquisition, reserved: &fresh.lease}, nil
}

// conclude does with the answer to op what compete and takeOne do.
func (l *Locker) conclude(op *acquireOp, lease driver.Lease, err error) attempt {
	e, h := op.entry, op.hold
	if err != nil {
		told := op.explain(err) // before the entry is given up
		l.stopCompeting(op, err)
		err = told
	} else {
		var inTime bool
		if inTime, err = l.granted(e, h, op.reserved, lease); err == nil && !inTime {
			err = l.tooLate(e, h)
		}
	}
	if err != nil {
		l.leave(e.shard)
		return attempt{err: err}
	}
	one := &Hold{frame: &frame{}}
	one.frame.current.Store(h)
	return attempt{held: one}
}

// joins reports whether the lease of h can be freed together with others.
func (h *Hold) joins() bool {
	e := h.frame.hold().entry
	_, ok := e.backend.(driver.BatchReleaser)
	return ok && h.parent == nil && e.id.kind == 0
}

// freeTogether has the backends free the leases of rs, where there is one, and lets the
// next in the queues of their entries compete. All of rs have joined.
func freeTogether(ctx context.Context, rs []releasing) {
	groups := map[string][]*releasing{} // by the backend's name
	for i := range rs {
		if r := &rs[i]; r.lease != nil {
			name := r.lease.entry.id.backend
			groups[name] = append(groups[name], r)
		}
	}
	var work sync.WaitGroup
	for _, group := range groups {
		work.Go(func() {
			b := group[0].lease.entry.backend.(driver.BatchReleaser)
			leases, lasts := make([]driver.Lease, len(group)), make([]uint64, len(group))
			for i, r := range group {
				leases[i], lasts[i] = r.lease.Lease, r.lease.token-1
			}
			errs := b.ReleaseAll(ctx, leases, lasts)
			if len(errs) != len(leases) {
				errs = repeated(errors.New("ReleaseAll broke its contract: one result for each lease"), len(leases))
			}
			for i, r := range group {
				l := r.hold.locker
				r.err = l.released(r.lease, errs[i])
				l.next(r.lease.entry)
			}
		})
	}
	work.Wait()
}
