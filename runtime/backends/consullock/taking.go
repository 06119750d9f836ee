package consullock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/lockgen/lockgen/runtime/driver"
)

// resendAfter is when an attempt without an answer is followed by another. Each
// is idempotent; after the last the outcome is unknown.
var resendAfter = []time.Duration{0, 50 * time.Millisecond, 300 * time.Millisecond}

// contentions is how often one call of Acquire is overtaken by others before it
// leaves the rest to the next.
const contentions = 20

// taking is one call of Acquire.
type taking struct {
	backend     *Backend
	acquisition *driver.Acquisition
	process     string
	session     *session // of the last attempt
}

// run begins as if the key were free and nobody waited for it, which is one
// transaction; what it is conditional on finds out if that is wrong. Whoever
// waits knows better: it is its turn, or it looks first.
func (t *taking) run(ctx context.Context) (l *lease, err error) {
	if l = t.claim(); l != nil {
		return l, nil
	}
	v, watched, turn := t.backend.expected(t.acquisition.Key, t.process)
	if watched && !turn {
		if t.session, err = t.backend.session(ctx, classOf(t.acquisition.TTL, false)); err != nil {
			return nil, t.failed(err)
		}
		if v, l, err = t.reconsider(ctx); l != nil || err != nil {
			return l, err
		}
	}
	resent, moved := 0, 0
	for {
		l, err = t.take(ctx, v)
		switch {
		case err == nil:
			return l, nil
		case errors.Is(err, errNoAnswer):
			if resent == len(resendAfter) || !pause(ctx, resendAfter[resent]) {
				return nil, t.failed(err)
			}
			resent++
		case errors.Is(err, errMoved), errors.Is(err, errNoSession):
			if moved++; moved > contentions {
				return nil, held()
			}
		default:
			return nil, t.failed(err)
		}
		if v, l, err = t.reconsider(ctx); l != nil || err != nil {
			return l, err
		}
	}
}

// failed says of an error whether an earlier attempt leaves the outcome open.
func (t *taking) failed(err error) error {
	if errors.Is(err, errDelayed) {
		return &delayed{}
	}
	if t.acquisition.MayHaveRun {
		return fmt.Errorf("%w: %w", driver.ErrIndeterminate, err)
	}
	return err
}

// delayed is a [driver.HeldError] with its reason. How long it lasts is known to
// the server alone.
type delayed struct{ driver.HeldError }

func (*delayed) Error() string {
	return "shut by Consul's lock-delay: the session that held it ended without a release, " +
		"and the key stays shut for the lock-delay of that session (15s unless set)"
}

func (d *delayed) Unwrap() error { return &d.HeldError }

// take tries to take the lock as it was seen: free, and nobody's turn but ours.
func (t *taking) take(ctx context.Context, v *seen) (*lease, error) {
	b, a := t.backend, t.acquisition
	until := driver.Now().Add(a.TTL)
	s, err := b.session(ctx, classOf(a.TTL, v.pair != nil))
	if err != nil {
		return nil, err
	}
	t.session = s
	if err = s.reach(ctx, until); err != nil {
		return nil, err
	}
	txn := ops{unchanged(fenceKey(s.id), s.fenceIndex())}
	rest := v.queue.without(t.process)
	txn = append(txn, v.queue.becoming(v.key, rest)...)
	txn = append(txn, unchanged(v.key, v.index()),
		kv(api.KVLock, api.KVTxnOp{Key: v.key, Session: s.id, Flags: lockFlag, Value: []byte(a.ID)}))
	pair, err := b.write(ctx, txn)
	if errors.Is(err, errNoAnswer) {
		b.unanswered(a, s)
		b.found(a.ID, v)
	}
	if errors.Is(err, errNoSession) {
		s.end()
	}
	if err != nil {
		return nil, err
	}
	if pair == nil {
		return nil, fmt.Errorf("the token may not read %s", v.key)
	}
	pair.Value = []byte(a.ID)
	b.noOffer(a.ID)
	l := t.lease(s, pair, until, a.TTL)
	l.queued = len(rest) > 0
	if v.pair != nil {
		l.before = v.pair.Value
	}
	return l, nil
}

func (t *taking) lease(s *session, pair *api.KVPair, until driver.Instant, term time.Duration) *lease {
	a := t.acquisition
	l := &lease{
		backend: t.backend, session: s, key: a.Key, id: a.ID, pair: pair, made: pair.CreateIndex == pair.ModifyIndex,
		first: pair.ModifyIndex << tokenBits, n: min(a.Tokens, 1<<tokenBits), unanswered: a.MayHaveRun,
		began: time.Now(), looked: time.Now(), settling: make(chan struct{}, 1),
	}
	l.extend(until, term)
	if l.made {
		t.backend.lookout(l)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leases[l] = true
	return l
}

// reconsider looks at the lock and its queue. It returns how they are if the
// lock is ours to take, the lease if an attempt without an answer has taken it,
// or else why it can't be had.
func (t *taking) reconsider(ctx context.Context) (*seen, *lease, error) {
	b, a := t.backend, t.acquisition
	for range contentions {
		v, err := t.look(ctx)
		switch {
		case errors.Is(err, errMoved):
			continue
		case err != nil && ctx.Err() != nil && !a.MayHaveRun:
			return nil, nil, held() // as it was when last heard of
		case err != nil:
			return nil, nil, t.failed(err)
		}
		b.remember(v)
		if !v.heldBy(a.ID) {
			b.notYet(a.ID, v)
		}
		head := v.queue.head().name
		switch {
		case v.pair != nil && v.pair.Flags != lockFlag:
			return nil, nil, fmt.Errorf("%w: %q has flags %#x, not those of a lock (%#x)",
				driver.ErrConflict, a.Key, v.pair.Flags, lockFlag)
		case v.heldBy(a.ID):
			l, err := t.adopt(ctx, v)
			if errors.Is(err, errMoved) {
				continue
			}
			return nil, l, err
		case v.pair != nil && v.pair.Session != "" && !v.granted():
			b.noTurn(a.Key)
			err = t.enlist(ctx, v, held())
		case !v.granted() && (head == "" || head == t.process):
			b.noTurn(a.Key)
			return v, nil, nil
		default:
			err = t.behind(ctx, v)
		}
		if !errors.Is(err, errMoved) {
			return nil, nil, err
		}
		if !pause(ctx, rand.N(time.Millisecond)) {
			return nil, nil, t.failed(ctx.Err())
		}
	}
	return nil, nil, held()
}

// look looks at the lock and its queue, and has the session know its fence. One that
// was there and is gone was deleted by somebody: an attempt of before it could still
// arrive on this session, which is left to those that have it. errMoved says that t has
// another.
func (t *taking) look(ctx context.Context) (*seen, error) {
	before := t.session.fenceIndex()
	v, err := t.backend.look(ctx, t.acquisition.Key, t.session)
	if err != nil {
		return nil, err
	}
	if v.fence >= before {
		t.session.fenced(v.fence)
		return v, nil
	}
	t.session.retire()
	s, err := t.backend.session(ctx, t.session.class)
	if err != nil {
		return nil, err
	}
	t.session = s
	return nil, errMoved
}

// behind waits for the head of the queue, whose the lock is or may be; or passes
// it, and returns errMoved.
func (t *taking) behind(ctx context.Context, v *seen) error {
	left, over := t.backend.overdue(v)
	switch {
	case !over && v.granted():
		return t.enlist(ctx, v, heldFor(left))
	case !over:
		return t.enlist(ctx, v, heldFor(min(left, turnWithin)))
	}
	if err := t.backend.pass(ctx, v); err != nil {
		return err
	}
	return errMoved
}

// adopt makes a lease of what an attempt without an answer has taken, or was given.
func (t *taking) adopt(ctx context.Context, v *seen) (*lease, error) {
	b, a, s := t.backend, t.acquisition, t.session
	if s.id != v.pair.Session {
		s = b.attempted(a.ID, v.pair.Session)
	}
	until := driver.Now().Add(a.TTL)
	if s != nil && s.reach(ctx, until) == nil {
		if err := b.confirm(ctx, v, v.queue.without(t.process)); err != nil {
			return nil, errMoved // or without an answer: to be looked at
		}
		b.noOffer(a.ID)
		l := t.lease(s, v.pair, until, a.TTL)
		l.before = b.before(a.ID)
		return l, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, t.failed(err)
	}
	// On a session that we have given up: not to be built on.
	if err := t.backend.free(ctx, v); err != nil && !errors.Is(err, errMoved) {
		return nil, t.failed(err)
	}
	return nil, errMoved
}

// attempted returns the session of this id on which an attempt had no answer, or
// that was offered.
func (b *Backend) attempted(acquisition, id string) *session {
	b.mu.Lock()
	defer b.mu.Unlock()
	if at := b.attempts[acquisition]; at != nil {
		for s := range at.sessions {
			if s.id == id {
				return s
			}
		}
	}
	if o := b.offers[acquisition]; o != nil && o.session.id == id {
		return o.session
	}
	return nil
}

// pause waits d, a little more or less, and reports whether ctx still lives.
func pause(ctx context.Context, d time.Duration) bool {
	if d == 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d - rand.N(d/4+1))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
