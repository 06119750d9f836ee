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
	first  *mvccpb.KeyValue // the one that owns the lock, if that was found
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

// stand sees to it that we have a key, if we need one, with a's ID in it, and finds out how
// it stands, as a majority has it. A key that e has stays in the queue where it is, and what
// may still be under way to delete it hits nothing. Where e has none a new one is written:
// always, if a waits; if there is no other, if not. What is found then is ours, from another
// attempt at this acquisition or another, or one that is held still, or is being given up.
func (e *entry) stand(ctx context.Context, s *session, a *driver.Acquisition) (standing, error) {
	alone := !e.known() && !a.Queue
	for n := int64(enough); ; {
		mine, prefix, tombstone := e.keyIn(s), e.prefix(), tombstoneOf(a)
		t := &pb.TxnRequest{
			Compare: []*pb.Compare{ifModified(mine, e.changed), ifCreated(tombstone, 0)},
			Success: []*pb.RequestOp{put(mine, a.ID, s.id), get(newest(prefix, e.created, n))},
			Failure: []*pb.RequestOp{get(one(mine)), get(one(tombstone)), get(newest(prefix, 0, enough))},
		}
		written := e.known() && e.owner == a.ID && !e.suspect
		if written { // only look
			t.Success = t.Success[1:]
		}
		if alone {
			t.Compare = append(t.Compare, ifNoneSince(prefix, 0))
		}
		resp, sent, err := e.send(ctx, a, t)
		if err != nil {
			return standing{}, err
		}
		if !resp.Succeeded && (e.known() || len(found(resp, 0)) > 0) {
			e.lost()
			return e.met(s, a, resp), nil
		}
		if resp.Succeeded && !written {
			e.note(s, a.ID, cmp.Or(e.created, resp.Header.Revision), resp.Header.Revision)
		}
		others := resp.Responses[len(resp.Responses)-1].GetResponseRange()
		st, ok := e.read(s, others.Kvs, others.More)
		st.at, st.sent = resp.Header.Revision, sent
		switch {
		case resp.Succeeded && !ok:
			n = 0 // look again, at all of them
		case resp.Succeeded || st.before != nil:
			return st, nil
		case !alone:
			return standing{}, nil // taken and gone meanwhile
		}
		alone = false // only keys of locks below this one, as far as we see: create it, then look
	}
}

// send sends t, which writes our key for a first, or only looks, and which reads the
// tombstone second if it fails. It returns from before when t was sent.
func (e *entry) send(ctx context.Context, a *driver.Acquisition, t *pb.TxnRequest) (*pb.TxnResponse, driver.Instant, error) {
	resp, r, err := e.backend.txn(ctx, t)
	mayHaveRun := r.mayHaveRun && t.Success[0].GetRequestPut() != nil
	a.MayHaveRun = a.MayHaveRun || mayHaveRun
	switch {
	case err != nil && mayHaveRun:
		err = fmt.Errorf("%w: %w", driver.ErrIndeterminate, err)
	case err == nil && !resp.Succeeded && len(found(resp, 1)) > 0:
		err = errUndone
	}
	return resp, r.sent, err
}

// met notes the key of ours that was there before, which resp has first, if there is one, and
// has matters looked at again. But one that is held is before us.
func (e *entry) met(s *session, a *driver.Acquisition, resp *pb.TxnResponse) standing {
	if len(found(resp, 0)) == 0 {
		return standing{}
	}
	kv := found(resp, 0)[0]
	l := e.holder()
	if l != nil && l.session == s && l.created == kv.CreateRevision && (l.Acquisition.ID != a.ID || l.Deadline().Left() <= 0) {
		l.wanted.Store(true)
		return standing{before: kv, first: kv, at: resp.Header.Revision}
	}
	e.note(s, string(kv.Value), kv.CreateRevision, kv.ModRevision)
	return standing{}
}

// read makes out how matters stand from what was found, newest first. ok is false
// if that was not enough to say.
func (e *entry) read(s *session, kvs []*mvccpb.KeyValue, more bool) (st standing, ok bool) {
	mine, prefix := e.keyIn(s), e.prefix()
	var oldest *mvccpb.KeyValue
	for _, kv := range kvs {
		switch {
		case string(kv.Key) == mine:
			st.own = kv
		case strings.Contains(string(kv.Key[len(prefix):]), "/"): // of a lock below this one
		default:
			st.before, oldest = cmp.Or(st.before, kv), kv
		}
	}
	if !more {
		st.first = oldest
	}
	return st, !more || st.before != nil && (st.own != nil || st.before.CreateRevision < e.created)
}

// wait turns an entry behind another's into the answer to the attempt.
func (e *entry) wait(ctx context.Context, s *session, a *driver.Acquisition, st standing) error {
	stranger := st.before.Lease == 0
	held := &driver.HeldError{Notified: st.own != nil && a.Queue}
	if st.first != nil {
		held.Holder = holderOf(st.first).ID
	}
	var err error = held
	switch noun := record.Noun(string(st.before.Value)); {
	case stranger && noun != "" && string(st.before.Key) == recordOf(a.Key):
		err = record.Beside(noun, record.Mutex)
	case stranger:
		err = fmt.Errorf("%w: the key %q has no lease, so is no lock of anyone's, and would block this one for ever; delete it, or lock another key",
			driver.ErrConflict, st.before.Key)
	}
	if st.own == nil {
		return err
	}
	if a.Queue && !stranger {
		e.follow(&watch{session: s, key: string(st.before.Key), from: st.at + 1})
	} else if gone := e.giveUp(ctx); gone != nil {
		a.MayHaveRun = true
		return fmt.Errorf("%w: an entry in the queue could not be given up: %w", driver.ErrIndeterminate, gone)
	}
	return err
}

// grant makes a lease of a key that owns the lock. sent is from before that was seen.
func (e *entry) grant(s *session, a *driver.Acquisition, sent driver.Instant) *lease {
	defer e.lost() // the lease stands for it
	if l := e.holder(); l != nil && l.session == s && l.created == e.created {
		_ = l.Extend(sent.Add(a.TTL)) // one that has ended says so by its deadline
		return l
	}
	return newLease(e, s, a, sent)
}
