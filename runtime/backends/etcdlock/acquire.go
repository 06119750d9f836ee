package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/lockgen/lockgen/runtime/driver"
)

// acquire makes one attempt, in s.
func (p *place) acquire(ctx context.Context, s *session, a *driver.Acquisition) (driver.Lease, error) {
	if p.known() && p.session != s { // of another ttl, or of a session that has ended
		if err := p.giveUp(ctx); err != nil {
			return nil, err
		}
	}
	if a.Queue && p.stillWaits(a) {
		return nil, &driver.HeldError{}
	}
	waits := p.known() && p.id == a.ID
	var fresh <-chan struct{}
	if a.Tokens > 1 && s.left() < a.TTL {
		// It is to be handed on, and each hold to begin with its own ttl ahead. The
		// keep-alive runs beside what follows.
		fresh = s.ask()
	}
	for {
		st, sent, err := p.stand(ctx, s, a)
		switch {
		case errors.Is(err, rpctypes.ErrLeaseNotFound):
			s.end(errSessionEnded)
			return nil, errSessionEnded
		case err != nil && ctx.Err() != nil && waits && !errors.Is(err, driver.ErrIndeterminate):
			return nil, &driver.HeldError{} // as it was when we last looked
		case err != nil:
			// What we have at the server may own the lock, or come to: nobody else frees it.
			a.MayBeGranted = a.MayBeGranted || p.serves(a)
			return nil, err
		case !s.alive():
			return nil, errSessionEnded
		case st.own == nil && st.before == nil:
			continue // it has changed under us: look again
		case st.before == nil:
			await(ctx, fresh)
			return p.grant(s, a, sent), nil
		}
		return nil, p.wait(ctx, s, a, st)
	}
}

// stand sees to it that we have a key, if we need one, that is ours, and finds
// out how it stands.
func (p *place) stand(ctx context.Context, s *session, a *driver.Acquisition) (standing, driver.Instant, error) {
	switch {
	case !p.known():
		return p.create(ctx, s, a)
	case p.id == a.ID && !p.suspect:
		return p.look(ctx, s)
	case a.Queue:
		return p.adopt(ctx, s, a)
	}
	// Who does not wait takes over a place only where it owns the lock.
	st, sent, err := p.look(ctx, s)
	if err != nil || st.own == nil || st.before != nil {
		return st, sent, err
	}
	return p.adopt(ctx, s, a)
}

// create writes our key: always, if we queue; if there is no other, if we don't.
// What is found then is ours, from this attempt at the same acquisition or
// another, or one that is held still, or is being given up.
func (p *place) create(ctx context.Context, s *session, a *driver.Acquisition) (st standing, sent driver.Instant, err error) {
	mine, mark := p.keys.prefix+s.suffix, p.keys.mark(s)
	t := &pb.TxnRequest{
		Compare: []*pb.Compare{ifCreated(mine, 0), ifCreated(mark, 0)},
		Success: []*pb.RequestOp{put(mine, a.ID, s.id), get(newest(p.keys.prefix, 0, enough))},
		Failure: []*pb.RequestOp{get(one(mine)), get(one(mark)), get(newest(p.keys.prefix, 0, enough))},
	}
	alone := !a.Queue
	if alone {
		t.Compare = append(t.Compare, ifEmpty(p.keys.prefix))
	}
	for {
		resp, r, err := s.backend.txn(ctx, t)
		a.MayHaveRun = a.MayHaveRun || r.silent
		if err != nil {
			return st, sent, unknown(r, err)
		}
		if !resp.Succeeded && len(found(resp, 1)) > 0 {
			return st, sent, errUndone
		}
		if !resp.Succeeded && len(found(resp, 0)) > 0 {
			return p.met(ctx, s, resp, found(resp, 0)[0])
		}
		others := resp.Responses[len(resp.Responses)-1].GetResponseRange()
		st, ok := p.read(s, others.Kvs, others.More)
		st.at = resp.Header.Revision
		switch {
		case resp.Succeeded:
			p.note(s, &mvccpb.KeyValue{Value: []byte(a.ID), CreateRevision: st.at, ModRevision: st.at})
			if !ok {
				st, _, err = p.look(ctx, s)
			}
			return st, r.sent, err
		case st.before != nil:
			return st, r.sent, nil
		case !alone:
			return standing{}, r.sent, nil // taken and gone meanwhile
		}
		// Only keys of locks below this one, as far as we see: create it, then look.
		t.Compare, alone = t.Compare[:2], false
	}
}

// met is a key of ours that was there before. One that is held is before us; any
// other we go on with.
func (p *place) met(ctx context.Context, s *session, resp *pb.TxnResponse, kv *mvccpb.KeyValue) (standing, driver.Instant, error) {
	if l := p.holder(); l != nil && l.session == s && l.created == kv.CreateRevision {
		if l.id == p.keys.id && !l.over() { // this very acquisition, once more
			p.note(s, kv)
			return p.look(ctx, s)
		}
		return standing{before: kv, at: resp.Header.Revision}, driver.Instant{}, nil
	}
	p.note(s, kv)
	return standing{}, driver.Instant{}, nil
}

// adopt writes our id over that of an acquisition before, and keeps the place. It
// also puts an end to what may still be under way to delete it.
func (p *place) adopt(ctx context.Context, s *session, a *driver.Acquisition) (st standing, sent driver.Instant, err error) {
	mine, mark := p.keys.prefix+s.suffix, p.keys.mark(s)
	resp, r, err := s.backend.txn(ctx, &pb.TxnRequest{
		Compare: []*pb.Compare{ifModified(mine, p.changed), ifCreated(mark, 0)},
		Success: []*pb.RequestOp{put(mine, a.ID, s.id), get(newest(p.keys.prefix, p.created, enough))},
		Failure: []*pb.RequestOp{get(one(mine)), get(one(mark))},
	})
	a.MayHaveRun = a.MayHaveRun || r.silent
	if err != nil {
		return st, sent, unknown(r, err)
	}
	if !resp.Succeeded {
		if len(found(resp, 1)) > 0 {
			return st, sent, errUndone
		}
		p.lost()
		if kvs := found(resp, 0); len(kvs) > 0 {
			return p.met(ctx, s, resp, kvs[0])
		}
		return st, sent, nil
	}
	others := resp.Responses[1].GetResponseRange()
	st, ok := p.read(s, others.Kvs, others.More)
	st.at = resp.Header.Revision
	p.note(s, &mvccpb.KeyValue{Value: []byte(a.ID), CreateRevision: p.created, ModRevision: st.at})
	if !ok {
		return p.look(ctx, s)
	}
	return st, r.sent, nil
}

// look asks how our key stands: a read, of what a majority has.
func (p *place) look(ctx context.Context, s *session) (st standing, sent driver.Instant, err error) {
	for n := int64(enough); ; n = 0 {
		resp, r, err := s.backend.find(ctx, newest(p.keys.prefix, p.created, n))
		if err != nil {
			return st, sent, err
		}
		st, ok := p.read(s, resp.Kvs, resp.More)
		if !ok {
			continue // again, all of them
		}
		st.at = resp.Header.Revision
		switch {
		case st.own == nil || st.own.CreateRevision != p.created: // deleted by someone
			p.lost()
			return standing{}, r.sent, nil
		case st.own.ModRevision != p.changed: // by a resend of ours
			p.note(s, st.own)
			if p.id != p.keys.id {
				return standing{}, r.sent, nil
			}
		}
		return st, r.sent, nil
	}
}

// wait turns a place behind another's into the answer to the attempt.
func (p *place) wait(ctx context.Context, s *session, a *driver.Acquisition, st standing) error {
	var err error = &driver.HeldError{}
	stranger := st.before.Lease == 0
	if stranger {
		err = fmt.Errorf("%w: the key %q has no lease, so is no lock of anyone's, and would block this one for ever; delete it, or lock another key",
			driver.ErrConflict, st.before.Key)
	}
	if st.own != nil && p.id == a.ID && (stranger || !a.Queue) {
		if gone := p.giveUp(ctx); gone != nil {
			a.MayHaveRun = true
			return fmt.Errorf("%w: a place in the queue could not be given up: %w", driver.ErrIndeterminate, gone)
		}
	}
	if a.Queue && !stranger {
		p.checked = time.Now()
		p.backend.follow(p, s, string(st.before.Key), st.at+1)
	}
	return err
}

// grant makes a lease of a key that owns the lock. sent is from before that was seen.
func (p *place) grant(s *session, a *driver.Acquisition, sent driver.Instant) *lease {
	defer p.lost() // the lease stands for it
	if l := p.holder(); l != nil && l.session == s && l.created == p.created {
		l.extend(sent.Add(a.TTL))
		return l
	}
	return newLease(p, s, a, sent)
}

// await waits for a keep-alive, but not for one that is late: the lease is good
// all the same.
func await(ctx context.Context, tried <-chan struct{}) {
	if tried == nil {
		return
	}
	t := time.NewTimer(20 * time.Millisecond)
	defer t.Stop()
	select {
	case <-tried:
	case <-t.C:
	case <-ctx.Done():
	}
}

// stillWaits reports whether nothing has happened since the server was last
// asked, a moment ago, by a watch that would tell.
func (p *place) stillWaits(a *driver.Acquisition) bool {
	return p.known() && p.id == a.ID && !p.suspect && p.session.alive() &&
		time.Since(p.checked) < pollLess && p.backend.watched(p)
}

// pollLess is for how long a watch is trusted without asking.
const pollLess = 500 * time.Millisecond
