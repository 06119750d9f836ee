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

// tokenBits is by how much the create revision is shifted for the fencing tokens
// of the hand-offs within one lease.
const tokenBits = 16

// lease implements [driver.Lease] by a key of ours that owns the lock.
type lease struct {
	place   *place
	session *session
	keys    keys
	id      string
	created int64 // create revision of the key
	tokens  uint64
	timer   *time.Timer // looks whether the lease was renewed

	mu         sync.Mutex
	until      driver.Instant // renewed until then, by the Locker
	unanswered bool           // an attempt to acquire it may still be under way
	freeing    bool           // a request to delete the key had no answer
	gone       bool           // the key is ours no more
	look       func()
}

func newLease(p *place, s *session, a *driver.Acquisition, sent driver.Instant) *lease {
	l := &lease{
		place: p, session: s, keys: p.keys, id: a.ID, created: p.created,
		tokens:     min(max(a.Tokens, 1), 1<<tokenBits),
		until:      sent.Add(a.TTL),
		unanswered: a.MayHaveRun,
	}
	b := p.backend
	b.mu.Lock()
	p.held = l
	b.mu.Unlock()
	l.mu.Lock()
	l.timer = time.AfterFunc(a.TTL, l.expire)
	l.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users++
	s.leases[l] = struct{}{}
	if s.ended.Err() != nil {
		l.lose()
	}
	return l
}

// Deadline implements [driver.Lease]: the end of the session, as the keep-alives
// move it, or that of this lease, if nobody renews it.
func (l *lease) Deadline() driver.Instant {
	l.mu.Lock()
	until, gone := l.until, l.gone
	l.mu.Unlock()
	if gone || l.session.ended.Err() != nil {
		return driver.Instant{}
	}
	// By what is left, not by the instants: the machine may have slept between the two.
	if end := *l.session.deadline.Load(); end.Left() < until.Left() {
		return end
	}
	return until
}

// Tokens implements [driver.Lease].
func (l *lease) Tokens() (first, n uint64) { return uint64(l.created) << tokenBits, l.tokens }

// NotifyLoss implements [driver.LossNotifier].
func (l *lease) NotifyLoss(look func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.look = look
}

// lose is called when the session has ended, and returns what has the Locker look
// at the lease, or nil.
func (l *lease) lose() func() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer.Stop()
	return l.look
}

// extend moves the end of the lease, never back. It reports whether the lease had not ended
// before. One that has is not revived: its key is being deleted, if it isn't yet.
func (l *lease) extend(until driver.Instant) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	left := l.until.Left()
	if left > 0 && until.Left() > left {
		l.until = until
	}
	return left > 0
}

// over reports whether the lease has ended.
func (l *lease) over() bool { return l.Deadline().Left() <= 0 }

// Renew implements [driver.Lease].
func (l *lease) Renew(ctx context.Context, ttl time.Duration) error {
	return l.place.backend.RenewAll(ctx, []driver.Lease{l}, []time.Duration{ttl})[0]
}

// Release implements [driver.Lease].
func (l *lease) Release(ctx context.Context, _ uint64) error {
	over := l.over()
	if err := l.free(ctx); err != nil {
		return err
	}
	if over {
		return errOver
	}
	return nil
}

// free deletes the key, if it is still the one that was acquired.
func (l *lease) free(ctx context.Context) error {
	l.mu.Lock()
	gone, freeing, unanswered := l.gone, l.freeing, l.unanswered
	l.mu.Unlock()
	if gone {
		return fmt.Errorf("%w: it is not held", driver.ErrLost)
	}
	b, mine := l.place.backend, l.keys.prefix+l.session.suffix
	t := &pb.TxnRequest{
		Compare: []*pb.Compare{ifCreated(mine, l.created)},
		Success: []*pb.RequestOp{del(mine)},
	}
	if unanswered {
		// An attempt that is late would take the lock again.
		b.ban(l.id)
		mark := put(l.keys.mark(l.session), "", l.session.id)
		t.Success, t.Failure = append(t.Success, mark), []*pb.RequestOp{mark}
	}
	resp, r, err := b.txn(ctx, t)
	full := unanswered && errors.Is(err, rpctypes.ErrNoSpace)
	if full {
		// There is no space for the mark, nor for what comes late. The session puts the
		// mark once there is, and frees what came before it.
		silent := r.silent
		resp, r, err = b.txn(ctx, withoutMark(t))
		r.silent = r.silent || silent
	}
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound): // and the key with it
		l.session.end(errSessionEnded)
		l.forget()
		return fmt.Errorf("%w: its session has ended", driver.ErrLost)
	case err != nil:
		l.mu.Lock()
		defer l.mu.Unlock()
		l.freeing = l.freeing || r.silent
		return err
	}
	switch {
	case full:
		l.session.owe(debt{keys: l.keys, late: true})
	case unanswered:
		l.session.bury(l.keys)
	}
	l.forget()
	if !resp.Succeeded && !freeing && !r.silent { // else it was we who deleted it
		return fmt.Errorf("%w: its key is gone", driver.ErrLost)
	}
	return nil
}

// disown notes that someone else has deleted the key. Nobody releases it then, and an
// attempt that is late would take the lock again: the session sees to that.
func (l *lease) disown() {
	l.mu.Lock()
	late := l.unanswered && !l.gone
	l.mu.Unlock()
	if late {
		l.session.owe(debt{keys: l.keys, late: true})
	}
	l.forget()
}

// forget notes that the key is no longer ours.
func (l *lease) forget() {
	l.mu.Lock()
	was := l.gone
	l.gone = true
	l.timer.Stop()
	l.mu.Unlock()
	if was {
		return
	}
	s, b := l.session, l.place.backend
	s.mu.Lock()
	delete(s.leases, l)
	s.mu.Unlock()
	s.drop()
	b.mu.Lock()
	defer b.mu.Unlock()
	if l.place.held == l {
		l.place.held = nil
		b.forget(l.place)
	}
}

// expire is called when the lease would be over unless it was renewed. The
// session lives on for others, so it is up to us to free the key.
func (l *lease) expire() {
	l.mu.Lock()
	left, gone := l.until.Left(), l.gone
	if left > 0 && !gone {
		l.timer.Reset(left)
	}
	l.mu.Unlock()
	if left > 0 || gone {
		return
	}
	b := l.place.backend
	b.mu.Lock()
	if b.closed.Err() != nil {
		b.mu.Unlock()
		return
	}
	b.work.Add(1)
	b.mu.Unlock()
	defer b.work.Done()
	for l.session.ended.Err() == nil {
		if err := l.free(l.session.ended); err == nil || errors.Is(err, driver.ErrLost) || !b.pause(l.session.ended, retryFree) {
			return
		}
	}
}

// retryFree is how long to wait before an expired lease is freed again.
const retryFree = 200 * time.Millisecond
