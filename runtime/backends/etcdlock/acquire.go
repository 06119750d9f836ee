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

// readLimit is how many keys a transaction reads at most: our own, its predecessor, and a few
// that are no contenders.
const readLimit = 4

// position is where our key stands among the contenders, as of revision.
type position struct {
	own         *mvccpb.KeyValue // nil: we have no key
	predecessor *mvccpb.KeyValue // the contender just before ours; nil: ours owns the lock
	holder      *mvccpb.KeyValue // the contender that owns the lock; nil if it was not found
	revision    int64
	sent        driver.Instant // before the request that read it
}

// acquire tries to take the lock in a session of class c. If the session ends meanwhile, whatever
// was taken in it is gone, and acquire tries again in the next one.
func (e *entry) acquire(ctx context.Context, c class, a *driver.Acquisition) (driver.Lease, error) {
	for {
		s, err := e.backend.sessions.Get(ctx, c)
		if err != nil {
			// We may have a key in a session that ended meanwhile: Undo gives it up.
			a.MayBeGranted = a.MayBeGranted || e.undoneBy(a)
			return nil, err
		}
		lease, err := e.attempt(ctx, s, a)
		s.Drop()
		if !errors.Is(err, errSessionEnded) {
			return lease, err
		}
	}
}

// attempt tries to take the lock in s.
func (e *entry) attempt(ctx context.Context, s *session, a *driver.Acquisition) (driver.Lease, error) {
	// Give up a key of another session, and one that a waiter left if a does not wait.
	if e.hasKey() && (e.session != s || !a.Queue && e.owner != a.ID) {
		if err := e.giveUp(ctx); err != nil {
			return nil, err
		}
	}
	if a.Tokens > 1 && s.Left() < a.TTL {
		// Each hold of a lease that is handed on begins with its whole ttl ahead. The
		// keep-alive runs beside what follows.
		s.Ask()
	}
	for {
		pos, err := e.contend(ctx, s, a)
		switch {
		case errors.Is(err, rpctypes.ErrLeaseNotFound):
			s.End(errSessionEnded)
			return nil, errSessionEnded
		case err != nil:
			// Our key may own the lock, or come to own it, and nobody else deletes it.
			a.MayBeGranted = a.MayBeGranted || e.undoneBy(a)
			return nil, err
		case !s.Alive():
			return nil, errSessionEnded
		case pos.own == nil && pos.predecessor == nil:
			continue // the keys changed meanwhile: try again
		case pos.predecessor != nil:
			return nil, e.wait(ctx, s, a, pos)
		}
		if a.NoRenewal { // the lease needs its whole length ahead
			err := s.Await(ctx, a.TTL)
			if errors.Is(err, driver.ErrLost) {
				return nil, errSessionEnded
			} else if err != nil {
				a.MayBeGranted = true
				return nil, err
			}
			pos.sent = driver.Now()
		}
		return e.grant(s, a, pos.sent), nil
	}
}

// contend writes a's ID to our key, and returns its position as a majority of the servers has it.
// A key that e has keeps its place in the queue; the write changes its mod revision, so that a late
// request to delete it does nothing. If e has no key, contend creates one: always if a waits, else
// only if there is no other contender. If the server has another key of ours than e knows of, contend
// calls adopt.
func (e *entry) contend(ctx context.Context, s *session, a *driver.Acquisition) (position, error) {
	onlyIfFree := !e.hasKey() && !a.Queue
	for n := int64(readLimit); ; {
		mine, prefix, tombstone := e.keyIn(s), e.prefix(), tombstoneOf(a)
		t := &pb.TxnRequest{
			Compare: []*pb.Compare{ifModified(mine, e.modified), ifCreated(tombstone, 0)},
			Success: []*pb.RequestOp{put(mine, a.ID, s.id), get(newest(prefix, e.created, n))},
			Failure: []*pb.RequestOp{get(one(mine)), get(one(tombstone)), get(newest(prefix, 0, readLimit))},
		}
		written := e.hasKey() && e.owner == a.ID && !e.maybeDeleted
		if written { // only look
			t.Success = t.Success[1:]
		}
		if onlyIfFree {
			t.Compare = append(t.Compare, ifNoneSince(prefix, 0))
		}
		resp, sent, err := e.send(ctx, a, t)
		if err != nil {
			return position{}, err
		}
		if !resp.Succeeded && (e.hasKey() || len(found(resp, 0)) > 0) {
			e.forgetKey()
			return e.adopt(s, a, resp), nil
		}
		if resp.Succeeded && !written {
			e.setKey(s, a.ID, cmp.Or(e.created, resp.Header.Revision), resp.Header.Revision)
		}
		others := resp.Responses[len(resp.Responses)-1].GetResponseRange()
		pos, ok := e.positionAmong(s, others.Kvs, others.More)
		pos.revision, pos.sent = resp.Header.Revision, sent
		switch {
		case resp.Succeeded && !ok:
			n = 0 // read again, without a limit
		case resp.Succeeded || pos.predecessor != nil:
			return pos, nil
		case !onlyIfFree:
			return position{}, nil // a contender has come and gone meanwhile
		}
		onlyIfFree = false // only keys of other locks were read: create ours, then read
	}
}

// send sends t, and notes in a whether it may have run. The first operation of t is the write of
// our key, if it writes, and the second of its failure reads the tombstone. The Instant is from
// before t was sent.
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

// adopt takes over a key of ours that e did not know of, for example after an attempt without an
// answer. If the server has it, it is the first in resp. The zero position makes the caller try again.
// If a lease still holds the key, a waits behind that.
func (e *entry) adopt(s *session, a *driver.Acquisition, resp *pb.TxnResponse) position {
	if len(found(resp, 0)) == 0 {
		return position{}
	}
	kv := found(resp, 0)[0]
	l := e.holder()
	if l != nil && l.session == s && l.created == kv.CreateRevision && (l.Acquisition.ID != a.ID || l.Deadline().Left() <= 0) {
		l.wanted.Store(true)
		return position{predecessor: kv, holder: kv, revision: resp.Header.Revision}
	}
	e.setKey(s, string(kv.Value), kv.CreateRevision, kv.ModRevision)
	return position{}
}

// positionAmong returns our position among kvs, newest first; more says that older keys were not
// read. ok is false if kvs is too short to tell.
func (e *entry) positionAmong(s *session, kvs []*mvccpb.KeyValue, more bool) (pos position, ok bool) {
	mine, prefix := e.keyIn(s), e.prefix()
	var oldest *mvccpb.KeyValue
	for _, kv := range kvs {
		switch {
		case string(kv.Key) == mine:
			pos.own = kv
		case strings.Contains(string(kv.Key[len(prefix):]), "/"): // of a lock below this one
		default:
			pos.predecessor, oldest = cmp.Or(pos.predecessor, kv), kv
		}
	}
	if !more {
		pos.holder = oldest
	}
	return pos, !more || pos.predecessor != nil && (pos.own != nil || pos.predecessor.CreateRevision < e.created)
}

// wait returns the error of an attempt that found a contender before ours. If a waits, it watches
// that contender; else it gives our key up.
func (e *entry) wait(ctx context.Context, s *session, a *driver.Acquisition, pos position) error {
	leaseless := pos.predecessor.Lease == 0
	held := &driver.HeldError{Notified: pos.own != nil && a.Queue}
	if pos.holder != nil {
		held.Holder = holderOf(pos.holder).ID
	}
	var err error = held
	switch noun := record.Noun(string(pos.predecessor.Value)); {
	case leaseless && noun != "" && string(pos.predecessor.Key) == recordOf(a.Key):
		err = record.Beside(noun, record.Mutex)
	case leaseless:
		err = fmt.Errorf("%w: the key %q has no lease, so is no lock of anyone's, and would block this one for ever; delete it, or lock another key",
			driver.ErrConflict, pos.predecessor.Key)
	}
	if pos.own == nil {
		return err
	}
	if a.Queue && !leaseless {
		e.setWatch(&watch{session: s, key: string(pos.predecessor.Key), from: pos.revision + 1})
	} else if undoErr := e.giveUp(ctx); undoErr != nil {
		a.MayHaveRun = true
		return fmt.Errorf("%w: an entry in the queue could not be given up: %w", driver.ErrIndeterminate, undoErr)
	}
	return err
}

// grant makes a lease of our key, which owns the lock. sent is from before the request that has
// shown that.
func (e *entry) grant(s *session, a *driver.Acquisition, sent driver.Instant) *lease {
	defer e.forgetKey() // the lease has it now
	if l := e.holder(); l != nil && l.session == s && l.created == e.created {
		_ = l.Extend(sent.Add(a.TTL)) // if the lease has ended, its deadline has passed
		return l
	}
	return newLease(e, s, a, sent)
}
