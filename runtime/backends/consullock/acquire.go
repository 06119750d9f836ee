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

// resends is how a request without an answer is sent again. Each is idempotent;
// after the last the outcome is unknown.
var resends = engine.Schedule{Pauses: []time.Duration{0, 50 * time.Millisecond, 300 * time.Millisecond}}

// contentions is how often others may overtake one attempt.
const contentions = 20

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

// attempt acts on the lock and its queue as they are expected to be. If that is
// wrong, the conditions of the transaction find it out; then, or if v is nil, it
// looks first.
func (op *acquireOp) attempt(ctx context.Context, v *seen) (l *lease, err error) {
	held := false // by others, as far as was heard
	for i := range contentions {
		if v == nil {
			v, err = op.backend.look(ctx, op.place.Key)
			if err != nil && held && ctx.Err() != nil && !op.acquisition.MayHaveRun {
				return nil, &driver.HeldError{}
			}
		}
		if err == nil {
			l, err = op.actOn(ctx, v)
		}
		if !errors.Is(err, errMoved) && !errors.Is(err, errNoSession) {
			return l, err
		}
		v, held = nil, held || errors.Is(err, errMoved) && !errors.Is(err, errOwn)
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

// actOn takes the lock if that is free and it is the turn of this process; else
// it says why not. errMoved says that it is to be looked at again.
func (op *acquireOp) actOn(ctx context.Context, v *seen) (*lease, error) {
	b, a := op.backend, op.acquisition
	switch ahead := v.ahead(op.place.Process); {
	case v.pair != nil && v.pair.Flags != lockFlag:
		return nil, record.Beside(looksLike(v.pair), record.Mutex)
	case v.heldBy(a.ID): // by an attempt that had no answer
		return nil, cmp.Or(op.giveBack(ctx, v.pair), errOwn)
	case v.held():
		return nil, op.wait(ctx, v, driver.HeldError{Holder: ownerOf(v.pair)})
	case v.told || len(ahead) == 0:
		return op.take(ctx, v)
	default:
		left := b.turnLeft(a, v, ahead[0])
		if left > 0 {
			return nil, op.wait(ctx, v, driver.HeldError{RetryAfter: left})
		}
		return nil, cmp.Or(b.pass(ctx, v, ahead[0]), errMoved)
	}
}

// take tries to take the lock, which was seen or assumed to be free, and takes this
// process out of the queue. If nobody has looked whether others wait, the transaction
// tells; then the lock is given back.
func (op *acquireOp) take(ctx context.Context, v *seen) (*lease, error) {
	b, a := op.backend, op.acquisition
	s, err := b.sessions.Get(ctx, classOf(a.TTL))
	if err != nil {
		return nil, err
	}
	defer s.Drop()
	if err = s.Await(ctx, a.TTL); errors.Is(err, driver.ErrLost) {
		return nil, errNoSession // whoever acquires begins again on another one
	} else if err != nil {
		return nil, err
	}
	t := ops{unchanged(tombstoneOf(a.ID), 0), unchanged(v.key, v.index())}
	t = append(t, kv(api.KVLock, api.KVTxnOp{Key: v.key, Session: s.id, Flags: lockFlag, Value: []byte(a.ID)}))
	if key := b.entryOf(op.place); key != "" {
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
	if others := r.queue(v.key); len(others) > 0 { // it is somebody's turn
		b.sawQueue(v.key, r)
		return nil, cmp.Or(op.giveBack(ctx, pair), errMoved)
	}
	b.placeless(op.place)
	l := &lease{Lease: s.NewLease(a, pair.ModifyIndex, until, nil), backend: b, session: s}
	l.pair.Store(pair)
	return l, nil
}

// giveBack frees the lock that an attempt has taken as p. A request to do so that arrives late
// frees none that is taken anew: so what an attempt without an answer has taken is given back as
// well, and never kept.
func (op *acquireOp) giveBack(ctx context.Context, p *api.KVPair) error {
	_, err := op.backend.write(ctx, freeing(p))
	if err != nil { // perhaps not sent, as ctx has ended
		op.acquisition.MayHaveRun = true
	}
	return err
}

// wait has the process stand in the queue, if the caller will wait, and watch what
// will make it try again. It returns answer. A place that can't be had is no error:
// whoever waits looks again.
func (op *acquireOp) wait(ctx context.Context, v *seen, answer driver.HeldError) error {
	if !op.acquisition.Queue {
		return &answer
	}
	w := op.backend.waiterOf(op.acquisition)
	if at := v.at(op.place.Process); at >= 0 {
		op.backend.enlisted(w, v.queue[at].Key)
		for _, s := range op.backend.sessions.All() {
			if s.id == v.queue[at].Session { // it is not idle: whoever waits looks once a second
				s.Use()
				s.Drop()
			}
		}
	} else if err := op.enlist(ctx, v, w); errors.Is(err, errMoved) || errors.Is(err, errNoSession) {
		op.backend.placeless(op.place) // nobody undoes an attempt that fails before it waits
		return err
	}
	answer.Notified = w.aim(v.target(op.place.Process))
	return &answer
}

// enlist puts the process in the queue that was seen. The entry is locked by a session
// and goes with it. It is conditional on the lock as it was seen: one that came
// after its acquisition has taken the lock would stay. And on the tombstone: one that came
// after its undo would stand in the others' way.
func (op *acquireOp) enlist(ctx context.Context, v *seen, w *waiter) error {
	b, a := op.backend, op.acquisition
	s, err := b.sessions.Get(ctx, classOf(a.TTL))
	if err != nil {
		return err
	}
	defer s.Drop()
	key := queuePrefix(v.key) + op.place.Process + "." + s.id
	b.enlisted(w, key)
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

// write sends what locks a key by s.
func (op *acquireOp) write(ctx context.Context, s *session, t ops) (reply, error) {
	r, err := op.backend.write(ctx, t)
	switch {
	case errors.Is(err, errNoAnswer):
		op.acquisition.MayHaveRun = true
	case errors.Is(err, errNoSession):
		s.gone()
	}
	return r, err
}
