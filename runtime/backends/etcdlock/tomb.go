package etcdlock

import (
	"context"
	"errors"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// tomb is a mark that an acquisition was undone, in one session.
type tomb struct {
	key string
	at  time.Time
}

// undo frees what the acquisition of k took in this session. If an attempt of it
// may be on its way, late, it sees to it that this takes nothing: whatever comes
// needs the session's lease, and with that the mark goes, too.
func (s *session) undo(ctx context.Context, k keys, late bool) error {
	mine := k.prefix + s.suffix
	t := &pb.TxnRequest{
		Compare: []*pb.Compare{ifValue(mine, k.id)},
		Success: []*pb.RequestOp{del(mine)},
	}
	if late {
		mark := put(k.mark(s), "", s.id)
		t.Success, t.Failure = append(t.Success, mark), []*pb.RequestOp{mark}
	}
	_, _, err := s.backend.txn(ctx, t)
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		s.end(errSessionEnded)
		return nil
	case late && errors.Is(err, rpctypes.ErrNoSpace):
		// For the mark, that is. Without it nothing can be written late, either; whoever
		// is told tries again, until there is a mark.
		_, _, _ = s.backend.txn(ctx, withoutMark(t))
		return err
	case err != nil:
		return err
	}
	if late {
		s.bury(k)
	}
	return nil
}

// withoutMark returns what t does but for the mark.
func withoutMark(t *pb.TxnRequest) *pb.TxnRequest {
	return &pb.TxnRequest{Compare: t.Compare, Success: t.Success[:1]}
}

// bury notes the mark of k, to be removed when no attempt can be under way any more.
func (s *session) bury(k keys) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tombs = append(s.tombs, tomb{k.mark(s), time.Now()})
}

// sweep removes the tombs that are old, a few at a time, in the background: a keep-alive
// that waited for it would be late where etcd does not write for the moment.
func (s *session) sweep() {
	if old := s.unearth(); len(old) > 0 {
		s.backend.background(func() { s.removeTombs(old) })
	}
}

// unearth takes out the tombs that are to be removed now: none while others are.
func (s *session) unearth() (old []tomb) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sweeping {
		return nil
	}
	rest := s.tombs[:0]
	for _, t := range s.tombs {
		if len(old) < batch && time.Since(t.at) > straggler {
			old = append(old, t)
		} else {
			rest = append(rest, t)
		}
	}
	s.tombs, s.sweeping = rest, len(old) > 0
	return old
}

// removeTombs removes old. What fails is tried again after the next keep-alive.
func (s *session) removeTombs(old []tomb) {
	ctx, cancel := context.WithTimeout(s.ended, s.backend.options.AttemptTimeout)
	defer cancel()
	left := s.tryRemove(ctx, old)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweeping = false
	s.tombs = append(s.tombs, left...)
}

// tryRemove removes old, at once if it may, and returns what is to be tried again. A mark
// that may not be removed, as a right has ended, is left to the end of the session: the
// whole is refused for its sake, and each of the others is then removed by itself.
func (s *session) tryRemove(ctx context.Context, old []tomb) (left []tomb) {
	t := &pb.TxnRequest{}
	for _, o := range old {
		t.Success = append(t.Success, del(o.key))
	}
	_, _, err := s.backend.txn(ctx, t)
	switch {
	case err == nil:
		return nil
	case !errors.Is(err, rpctypes.ErrPermissionDenied):
		return old
	case len(old) == 1:
		return nil
	}
	for i := range old {
		left = append(left, s.tryRemove(ctx, old[i:i+1])...)
	}
	return left
}
