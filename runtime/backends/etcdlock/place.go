package etcdlock

import (
	"context"
	"fmt"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/lockgen/lockgen/runtime/driver"
)

// placeID names what one Locker has to do with one key.
type placeID struct{ locker, key string }

// place is one Locker's contender for one key. The Locker has one goroutine
// compete for a key at a time, so one key of etcd serves them all, in turn: when
// one gives up, the next takes the place in the queue over by writing its own id
// over the other's, which leaves the create revision as it is. turn keeps two
// acquisitions that come at once all the same from both finding themselves the owner.
type place struct {
	backend *Backend
	name    placeID
	turn    chan struct{} // holds a value while someone acquires or gives up

	// Guarded by turn.
	keys    keys
	session *session // whose key it is; nil while there is none, as far as we know
	id      string   // the acquisition that wrote it
	created int64
	changed int64 // mod revision
	suspect bool  // a request that deletes it at this mod revision had no answer
	checked time.Time

	// Guarded by the backend's mutex.
	users int // in turn or waiting for it, subscriptions included
	held  *lease
	subs  map[*subscription]struct{}
	watch *watch
}

// enter returns the place of k, for the caller alone until it calls leave.
func (b *Backend) enter(ctx context.Context, k keys) (*place, error) {
	p := b.place(k)
	if !p.enter(ctx) {
		err := p.busy(ctx)
		b.forsake(p)
		return nil, err
	}
	p.keys = k
	return p, nil
}

// enter waits for p's turn, which the caller then has, or until ctx ends.
func (p *place) enter(ctx context.Context) bool {
	select {
	case p.turn <- struct{}{}:
		return true
	default:
	}
	select {
	case p.turn <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// busy is the answer to who did not get p's turn before ctx ended. What has the turn is
// mostly an undo, which lasts as long as etcd does not answer: that alone does not say
// that anyone holds the key.
func (p *place) busy(ctx context.Context) error {
	b := p.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	if p.held != nil || p.watch != nil || len(p.subs) > 0 {
		return &driver.HeldError{} // as it was when we last looked
	}
	return fmt.Errorf("waiting for what is under way about the key: %w", ctx.Err())
}

// place returns the place of k, which stays until forsake was called as often.
func (b *Backend) place(k keys) *place {
	b.mu.Lock()
	defer b.mu.Unlock()
	id := placeID{k.locker, k.lock}
	p := b.places[id]
	if p == nil {
		p = &place{backend: b, name: id, turn: make(chan struct{}, 1)}
		b.places[id] = p
	}
	p.users++
	return p
}

func (b *Backend) forsake(p *place) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p.users--
	b.forget(p)
}

// forget drops p from the table if it is about nothing any more. The backend is
// locked.
func (b *Backend) forget(p *place) {
	if p.users == 0 && p.held == nil {
		delete(b.places, p.name)
	}
}

// leave ends the caller's turn. A place in the queue keeps the record.
func (p *place) leave() {
	<-p.turn
	p.backend.forsake(p)
}

// known says whether we have a key at the server, as far as we know, that is not
// held.
func (p *place) known() bool { return p.session != nil }

// serves says whether the key that we have is given up with a: its own, or with a.Queue
// what an earlier one left. A later one that waits there is not a's concern.
func (p *place) serves(a *driver.Acquisition) bool {
	return p.known() && (p.id == a.ID || a.Queue && !a.BegunBefore(p.id))
}

// holder returns the lease that has not been released yet, or nil.
func (p *place) holder() *lease {
	p.backend.mu.Lock()
	defer p.backend.mu.Unlock()
	return p.held
}

// note takes down what the server has at our key.
func (p *place) note(s *session, kv *mvccpb.KeyValue) {
	if !p.known() {
		s.use()
		p.backend.place(p.keys)
	}
	p.session, p.id, p.created, p.changed, p.suspect = s, string(kv.Value), kv.CreateRevision, kv.ModRevision, false
}

// lost takes down that there is no key of ours, or that a lease stands for it.
func (p *place) lost() {
	if !p.known() {
		return
	}
	p.session.drop()
	p.session, p.checked = nil, time.Time{}
	p.backend.forsake(p)
	p.backend.unwatch(p)
}

// giveUp deletes our key, unless it has changed.
func (p *place) giveUp(ctx context.Context) error {
	s := p.session
	if s.alive() {
		mine := p.keys.prefix + s.suffix
		_, r, err := s.backend.txn(ctx, &pb.TxnRequest{
			Compare: []*pb.Compare{ifModified(mine, p.changed)},
			Success: []*pb.RequestOp{del(mine)},
		})
		if err != nil {
			p.suspect = p.suspect || r.silent
			return err
		}
	}
	p.lost()
	return nil
}

// standing is how matters stand at the server, as of the revision at.
type standing struct {
	own    *mvccpb.KeyValue // nil: we have no key
	before *mvccpb.KeyValue // the contender just before it; nil: it owns the lock
	at     int64
}

// enough is how many keys an answer holds at most: our own, the one before, and a
// few that are no contenders.
const enough = 4

// read makes out how matters stand from what was found, newest first. ok is false
// if that was not enough to say.
func (p *place) read(s *session, kvs []*mvccpb.KeyValue, more bool) (st standing, ok bool) {
	mine := p.keys.prefix + s.suffix
	for _, kv := range kvs {
		switch rest := string(kv.Key[len(p.keys.prefix):]); {
		case string(kv.Key) == mine:
			st.own = kv
		case strings.Contains(rest, "/"): // of a lock below this one
		case st.before == nil:
			st.before = kv
		}
		if st.before != nil && (st.own != nil || st.before.CreateRevision < p.created) {
			return st, true
		}
	}
	return st, !more
}
