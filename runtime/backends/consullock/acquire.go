package consullock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
	"github.com/lockgen/lockgen/runtime/internal/record"
)

// resends says when a request without an answer is sent again. Each resend is
// idempotent; after the last the outcome is unknown.
var resends = engine.Schedule{Pauses: []time.Duration{0, 50 * time.Millisecond, 300 * time.Millisecond}}

// maxContentions is how often the lock may change under one attempt before it gives up.
const maxContentions = 20

// resend calls attempt until it was answered. It reports whether any attempt was not.
func resend(ctx context.Context, attempt func(context.Context) error) (mayHaveRun bool, err error) {
	_, mayHaveRun, err = resends.Send(ctx, func(ctx context.Context) (engine.Outcome, error) {
		err := attempt(ctx)
		switch {
		case err == nil:
			return engine.Done, nil
		case errors.Is(err, errNoAnswer):
			return engine.NoAnswer, err
		}
		return engine.Refused, err
	})
	return mayHaveRun, err
}

// acquireOp is one call of Acquire.
type acquireOp struct {
	backend     *Backend
	acquisition *driver.Acquisition
	place       engine.Place
}

// run returns the lease, or why there is none.
func (op *acquireOp) run(ctx context.Context) (l *lease, err error) {
	v := op.backend.expected(op.place)
	_, err = resend(ctx, func(ctx context.Context) (err error) {
		l, err = op.attempt(ctx, v)
		v = nil
		return err
	})
	if err != nil && op.acquisition.MayHaveRun && engine.HeldBy(err) == nil {
		err = fmt.Errorf("%w: %w", driver.ErrIndeterminate, err)
	}
	return l, err
}

// attempt acts on v, as the lock and its queue are expected to be. If they are not, the
// transaction's conditions fail, and attempt reads them first. It does so at once if v is nil.
func (op *acquireOp) attempt(ctx context.Context, v *view) (l *lease, err error) {
	held := false // others have changed the lock meanwhile
	for i := range maxContentions {
		if v == nil {
			v, err = op.backend.readLock(ctx, op.place.Key)
			if err != nil && held && ctx.Err() != nil && !op.acquisition.MayHaveRun {
				return nil, &driver.HeldError{}
			}
		}
		if err == nil {
			l, err = op.actOn(ctx, v)
		}
		if !errors.Is(err, errChanged) && !errors.Is(err, errSessionEnded) {
			return l, err
		}
		v, held = nil, held || errors.Is(err, errChanged) && !errors.Is(err, errChangedByUs)
		if i > 0 && !engine.Pause(ctx, rand.N(time.Millisecond)) {
			break
		}
	}
	if held {
		return nil, &driver.HeldError{}
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	return nil, err
}

// actOn takes the lock if it is free and this process is the next to have it; else its error says
// why not. errChanged says that the lock is no longer as in v.
func (op *acquireOp) actOn(ctx context.Context, v *view) (*lease, error) {
	b, a := op.backend, op.acquisition
	switch ahead := v.ahead(op.place.Process); {
	case v.pair != nil && v.pair.Flags != lockFlag:
		return nil, record.Beside(looksLike(v.pair), record.Mutex)
	case v.heldBy(a.ID): // an attempt that had no answer has taken it
		return nil, cmp.Or(op.giveBack(ctx, v.pair), errChangedByUs)
	case v.held():
		return nil, op.wait(ctx, v, driver.HeldError{Holder: ownerOf(v.pair)})
	case v.freed || len(ahead) == 0:
		return op.take(ctx, v)
	default:
		left := b.turnLeft(a, v, ahead[0])
		if left > 0 {
			return nil, op.wait(ctx, v, driver.HeldError{RetryAfter: left})
		}
		return nil, cmp.Or(b.removeHead(ctx, v, ahead[0]), errChanged)
	}
}

// take tries to take the lock, which is free in v, and takes this process out of the queue. If v is
// assumed, the transaction reads the queue as well: if others wait, take gives the lock back.
func (op *acquireOp) take(ctx context.Context, v *view) (*lease, error) {
	b, a := op.backend, op.acquisition
	s, err := b.sessions.Get(ctx, classOf(a.TTL))
	if err != nil {
		return nil, err
	}
	defer s.Drop()
	if err = s.Await(ctx, a.TTL); errors.Is(err, driver.ErrLost) {
		return nil, errSessionEnded // attempt begins again on another session
	} else if err != nil {
		return nil, err
	}
	t := ops{unchanged(tombstoneOf(a.ID), 0), unchanged(v.key, v.index())}
	t = append(t, kv(api.KVLock, api.KVTxnOp{Key: v.key, Session: s.id, Flags: lockFlag, Value: []byte(a.ID)}))
	if key := b.entryKey(op.place); key != "" {
		t = append(t, kv(api.KVDelete, api.KVTxnOp{Key: key}))
	}
	if v.assumed {
		t = append(t, kv(api.KVGetTree, api.KVTxnOp{Key: queuePrefix(v.key)}))
	}
	until := driver.Now().Add(a.TTL)
	r, err := op.write(ctx, s, t)
	if err != nil {
		return nil, err
	}
	pair, err := r.at(v.key)
	if err != nil {
		return nil, err
	}
	pair.Value = []byte(a.ID)
	if others := r.queue(v.key); len(others) > 0 { // the first of them is next
		b.rememberQueue(v.key, r)
		return nil, cmp.Or(op.giveBack(ctx, pair), errChanged)
	}
	b.forgetWaiter(op.place)
	l := &lease{Lease: s.NewLease(a, pair.ModifyIndex, until, nil), backend: b, session: s}
	l.pair.Store(pair)
	return l, nil
}

// giveBack frees the lock p, which an attempt has taken. A lock that an attempt without an answer has
// taken is given back too, and never kept: so a request of giveBack that arrives late frees no lock
// that was taken later.
func (op *acquireOp) giveBack(ctx context.Context, p *api.KVPair) error {
	_, err := op.backend.write(ctx, freeOps(p))
	if err != nil { // the lock may still be ours
		op.acquisition.MayHaveRun = true
	}
	return err
}

// wait puts the process in the queue, if the caller waits, and watches the lock or the entry before
// its own. It returns answer. It is no error if there can be no entry: the Locker tries again
// once a second.
func (op *acquireOp) wait(ctx context.Context, v *view, answer driver.HeldError) error {
	if !op.acquisition.Queue {
		return &answer
	}
	w := op.backend.waiterOf(op.acquisition)
	if at := v.at(op.place.Process); at >= 0 {
		op.backend.setEntry(w, v.queue[at].Key)
		for _, s := range op.backend.sessions.All() {
			if s.id == v.queue[at].Session { // this process waits by it, so it is not idle
				s.Use()
				s.Drop()
			}
		}
	} else if err := op.enqueue(ctx, v, w); errors.Is(err, errChanged) || errors.Is(err, errSessionEnded) {
		op.backend.forgetWaiter(op.place) // nobody undoes an attempt that fails before it waits
		return err
	}
	answer.Notified = w.setTarget(v.target(op.place.Process))
	return &answer
}

// enqueue creates the process's entry in the queue. A session holds the entry, and Consul deletes
// it when that ends. The request is conditional on the lock as it is in v: an entry that arrived
// after its acquisition took the lock would stay. It is conditional on the tombstone as well: an
// entry that arrived after its undo would be in the others' way.
func (op *acquireOp) enqueue(ctx context.Context, v *view, w *waiter) error {
	b, a := op.backend, op.acquisition
	s, err := b.sessions.Get(ctx, classOf(a.TTL))
	if err != nil {
		return err
	}
	defer s.Drop()
	key := queuePrefix(v.key) + op.place.Process + "." + s.id
	b.setEntry(w, key)
	r, err := op.write(ctx, s, ops{
		unchanged(tombstoneOf(a.ID), 0),
		unchanged(v.key, v.index()),
		kv(api.KVLock, api.KVTxnOp{Key: key, Session: s.id, Value: []byte(a.ID)}),
		kv(api.KVGetTree, api.KVTxnOp{Key: queuePrefix(v.key)}),
	})
	if err == nil {
		v.queue = r.queue(v.key)
	}
	return err
}

// write sends a transaction that locks a key by s.
func (op *acquireOp) write(ctx context.Context, s *session, t ops) (reply, error) {
	r, err := op.backend.write(ctx, t)
	switch {
	case errors.Is(err, errNoAnswer):
		op.acquisition.MayHaveRun = true
	case errors.Is(err, errSessionEnded):
		s.endLost()
	}
	return r, err
}
