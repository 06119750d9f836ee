package etcdlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/record"
)

// enough is how many keys an answer holds at most: our own, the one before, and a few that
// are no contenders.
const enough = 4

// standing is how matters stand at the server, as of the revision at.
type standing struct {
	own    *mvccpb.KeyValue // nil: we have no key
	before *mvccpb.KeyValue // the contender just before it; nil: it owns the lock
	at     int64
	sent   driver.Instant // before the request that has found it
}

// take makes one attempt, in a session of c. If that ends meanwhile, at the server or by our
// clock, whatever was taken in it is gone, and it begins again in another.
func (e *entry) take(ctx context.Context, c class, a *driver.Acquisition) (driver.Lease, error) {
	for {
		s, err := e.backend.sessions.Get(ctx, c)
		if err != nil {
			// What we had in a session that ended meanwhile is to be given up.
			a.MayBeGranted = a.MayBeGranted || e.serves(a)
			return nil, err
		}
		lease, err := e.acquire(ctx, s, a)
		s.Drop()
		if !errors.Is(err, errSessionEnded) {
			return lease, err
		}
	}
}

// acquire makes one attempt, in s.
func (e *entry) acquire(ctx context.Context, s *session, a *driver.Acquisition) (driver.Lease, error) {
	// Of another ttl, of a session that has ended, or what a waiter has left to one that does not wait.
	if e.known() && (e.session != s || !a.Queue && e.owner != a.ID) {
		if err := e.giveUp(ctx); err != nil {
			return nil, err
		}
	}
	waits := e.known() && e.owner == a.ID
	if a.Tokens > 1 && s.Left() < a.TTL {
		// It is to be handed on, and each hold to begin with its own ttl ahead. The
		// keep-alive runs beside what follows.
		s.Ask()
	}
	for {
		st, err := e.stand(ctx, s, a)
		switch {
		case errors.Is(err, rpctypes.ErrLeaseNotFound):
			s.End(errSessionEnded)
			return nil, errSessionEnded
		case err != nil && ctx.Err() != nil && waits && !errors.Is(err, driver.ErrIndeterminate):
			return nil, &driver.HeldError{} // as it was when we last looked
		case err != nil:
			// What we have at the server may own the lock, or come to: nobody else frees it.
			a.MayBeGranted = a.MayBeGranted || e.serves(a)
			return nil, err
		case !s.Alive():
			return nil, errSessionEnded
		case st.own == nil && st.before == nil:
			continue // it has changed under us: look again
		case st.before != nil:
			return nil, e.wait(ctx, s, a, st)
		}
		if a.NoRenewal { // it has its whole length, whenever the session was proved to live
			err := s.Await(ctx, a.TTL)
			if errors.Is(err, driver.ErrLost) {
				return nil, errSessionEnded
			} else if err != nil {
				a.MayBeGranted = true
				return nil, err
			}
			st.sent = driver.Now()
		}
		return e.grant(s, a, st.sent), nil
	}
}

// stand sees to it that we have a key, if we need one, that is ours, and finds
// out how it stands.
func (e *entry) stand(ctx context.Context, s *session, a *driver.Acquisition) (standing, error) {
	if e.known() && e.owner == a.ID && !e.suspect {
		return e.look(ctx, s, a)
	}
	return e.claim(ctx, s, a)
}

// claim writes our key with a's ID. A key that e has stays in the queue where it is, and what
// may still be under way to delete it hits nothing. Where e has none a new one is written:
// always, if a waits; if there is no other, if not. What is found then is ours, from another
// attempt at this acquisition or another, or one that is held still, or is being given up.
func (e *entry) claim(ctx context.Context, s *session, a *driver.Acquisition) (standing, error) {
	var created, changed int64 // 0: there must be none
	if e.known() {
		created, changed = e.created, e.changed
	}
	mine, prefix, tombstone := e.keyIn(s), e.id.prefix(), tombstoneOf(a)
	t := &pb.TxnRequest{
		Compare: []*pb.Compare{ifModified(mine, changed), ifCreated(tombstone, 0)},
		Success: []*pb.RequestOp{put(mine, a.ID, s.id), get(newest(prefix, created, enough))},
		Failure: []*pb.RequestOp{get(one(mine)), get(one(tombstone)), get(newest(prefix, 0, enough))},
	}
	alone := !e.known() && !a.Queue
	if alone {
		t.Compare = append(t.Compare, ifEmpty(prefix))
	}
	for {
		resp, sent, err := e.write(ctx, a, t)
		if err != nil {
			return standing{}, err
		}
		if !resp.Succeeded && (e.known() || len(found(resp, 0)) > 0) {
			e.lost()
			return e.met(ctx, s, a, resp)
		}
		others := resp.Responses[len(resp.Responses)-1].GetResponseRange()
		st, ok := e.read(s, others.Kvs, others.More)
		st.at, st.sent = resp.Header.Revision, sent
		switch {
		case resp.Succeeded:
			e.note(s, &mvccpb.KeyValue{Value: []byte(a.ID), CreateRevision: cmp.Or(created, st.at), ModRevision: st.at})
			if !ok {
				return e.look(ctx, s, a)
			}
			return st, nil
		case st.before != nil:
			return st, nil
		case !alone:
			return standing{}, nil // taken and gone meanwhile
		}
		// Only keys of locks below this one, as far as we see: create it, then look.
		t.Compare, alone = t.Compare[:2], false
	}
}

// write sends t, which writes our key for a, or reads the tombstone second. It returns
// from before when t was sent.
func (e *entry) write(ctx context.Context, a *driver.Acquisition, t *pb.TxnRequest) (*pb.TxnResponse, driver.Instant, error) {
	resp, r, err := e.backend.txn(ctx, t)
	a.MayHaveRun = a.MayHaveRun || r.mayHaveRun
	switch {
	case err != nil && r.mayHaveRun:
		err = fmt.Errorf("%w: %w", driver.ErrIndeterminate, err)
	case err == nil && !resp.Succeeded && len(found(resp, 1)) > 0:
		err = errUndone
	}
	return resp, r.sent, err
}

// met is a key of ours that was there before, which resp has first, if there is one. One that
// is held is before us; any other we go on with.
func (e *entry) met(ctx context.Context, s *session, a *driver.Acquisition, resp *pb.TxnResponse) (standing, error) {
	if len(found(resp, 0)) == 0 {
		return standing{}, nil
	}
	kv := found(resp, 0)[0]
	if l := e.holder(); l != nil && l.session == s && l.created == kv.CreateRevision {
		if l.Acquisition.ID == a.ID && !l.over() { // this very acquisition, once more
			e.note(s, kv)
			return e.look(ctx, s, a)
		}
		return standing{before: kv, at: resp.Header.Revision}, nil
	}
	e.note(s, kv)
	return standing{}, nil
}

// look asks how our key stands: a read, of what a majority has.
func (e *entry) look(ctx context.Context, s *session, a *driver.Acquisition) (standing, error) {
	for n := int64(enough); ; n = 0 {
		resp, r, err := e.backend.find(ctx, newest(e.id.prefix(), e.created, n))
		if err != nil {
			return standing{}, err
		}
		st, ok := e.read(s, resp.Kvs, resp.More)
		if !ok {
			continue // again, all of them
		}
		st.at, st.sent = resp.Header.Revision, r.sent
		switch {
		case st.own == nil || st.own.CreateRevision != e.created: // deleted by someone
			e.lost()
			return standing{}, nil
		case st.own.ModRevision != e.changed: // by a resend of ours
			e.note(s, st.own)
			if e.owner != a.ID {
				return standing{}, nil
			}
		}
		return st, nil
	}
}

// read makes out how matters stand from what was found, newest first. ok is false
// if that was not enough to say.
func (e *entry) read(s *session, kvs []*mvccpb.KeyValue, more bool) (st standing, ok bool) {
	mine, prefix := e.keyIn(s), e.id.prefix()
	for _, kv := range kvs {
		switch rest := string(kv.Key[len(prefix):]); {
		case string(kv.Key) == mine:
			st.own = kv
		case strings.Contains(rest, "/"): // of a lock below this one
		case st.before == nil:
			st.before = kv
		}
		if st.before != nil && (st.own != nil || st.before.CreateRevision < e.created) {
			return st, true
		}
	}
	return st, !more
}

// wait turns an entry behind another's into the answer to the attempt.
func (e *entry) wait(ctx context.Context, s *session, a *driver.Acquisition, st standing) error {
	stranger := st.before.Lease == 0
	var err error = &driver.HeldError{Holder: holderOf(st.before).ID, Notified: a.Queue}
	switch noun := record.Noun(string(st.before.Value)); {
	case stranger && noun != "" && string(st.before.Key) == recordOf(a.Key):
		err = record.Beside(noun, record.Mutex)
	case stranger:
		err = fmt.Errorf("%w: the key %q has no lease, so is no lock of anyone's, and would block this one for ever; delete it, or lock another key",
			driver.ErrConflict, st.before.Key)
	}
	if st.own != nil && e.owner == a.ID && (stranger || !a.Queue) {
		if gone := e.giveUp(ctx); gone != nil {
			a.MayHaveRun = true
			return fmt.Errorf("%w: an entry in the queue could not be given up: %w", driver.ErrIndeterminate, gone)
		}
	}
	if a.Queue && !stranger {
		e.follow(&watch{session: s, key: string(st.before.Key), from: st.at + 1})
	}
	return err
}

// grant makes a lease of a key that owns the lock. sent is from before that was seen.
func (e *entry) grant(s *session, a *driver.Acquisition, sent driver.Instant) *lease {
	defer e.lost() // the lease stands for it
	if l := e.holder(); l != nil && l.session == s && l.created == e.created {
		l.Extend(sent.Add(a.TTL))
		return l
	}
	return newLease(e, s, a, sent)
}
