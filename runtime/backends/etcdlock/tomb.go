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
	case err != nil:
		return err
	}
	if late {
		s.bury(k)
	}
	return nil
}

// bury notes the mark of k, to be removed when no attempt can be under way any more.
func (s *session) bury(k keys) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tombs = append(s.tombs, tomb{k.mark(s), time.Now()})
}

// sweep removes the tombs that are old, a few at a time.
func (s *session) sweep() {
	s.mu.Lock()
	var old []*pb.RequestOp
	rest := s.tombs[:0]
	for _, t := range s.tombs {
		if len(old) < batch && time.Since(t.at) > straggler {
			old = append(old, del(t.key))
		} else {
			rest = append(rest, t)
		}
	}
	s.tombs = rest
	s.mu.Unlock()
	if len(old) > 0 {
		// What is not removed now goes with the session.
		_, _, _ = s.backend.txn(s.ended, &pb.TxnRequest{Success: old})
	}
}
