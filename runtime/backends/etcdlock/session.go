package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// straggler is how long an attempt without an answer may be on its way.
const straggler = time.Minute

var errSessionEnded = fmt.Errorf("%w: the etcd lease of its session has ended", driver.ErrLost)

// class is what acquisitions have in common that share a session. It names the
// Locker, so that Lockers which share a Backend have keys of their own and queue
// like processes.
type class struct {
	locker  string
	seconds int64 // of its ttl, as asked for
}

// session is one lease of etcd, which many locks share. It implements
// [engine.SessionServer].
type session struct {
	*engine.Session
	backend *Backend
	class   class
	id      int64
	suffix  string // of its contenders' keys
	stream  atomic.Pointer[keepAliveStream]

	mu         sync.Mutex // guards the rest
	tombstones []tombstone
	collecting bool // a goroutine deletes some of them
}

// keepAliveStream is a stream of keep-alives. It is kept from one to the next, because
// a client with a password logs in again for each stream that it opens.
type keepAliveStream struct {
	pb.Lease_LeaseKeepAliveClient
	close context.CancelFunc
}

// tombstone is a key that says that an acquisition was undone. Each session has one of
// its own for that: it goes with the etcd lease that it is on, and must last as long as
// an attempt in that session may come.
type tombstone struct {
	key string
	at  time.Time
}

func (b *Backend) newSession(c class, base *engine.Session) *session {
	id := rand.Int64N(1<<62) + 1 // ours, so that a grant may be sent twice
	return &session{Session: base, backend: b, class: c, id: id, suffix: strconv.FormatInt(id, 16)}
}

// Open implements [engine.SessionServer]. The session's end counts from before the
// first request: any of them may be the one that was done.
func (s *session) Open(ctx context.Context) error {
	first := driver.Now()
	seconds := s.class.seconds
	r, err := s.backend.do(ctx, func(ctx context.Context, options ...grpc.CallOption) error {
		resp, err := s.backend.leases.LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: s.id, TTL: s.class.seconds}, options...)
		if err == nil {
			seconds = resp.TTL // which may be more than was asked for
		}
		return err
	})
	switch {
	case err == nil:
	case errors.Is(err, rpctypes.ErrLeaseExist) && r.mayHaveRun: // by an attempt that had no answer
	case errors.Is(err, rpctypes.ErrLeaseTTLTooLarge):
		return fmt.Errorf("%w: %w", driver.ErrInvalid, err)
	default:
		return fmt.Errorf("no lease granted: %w", err)
	}
	s.extend(first, seconds)
	return nil
}

func (s *session) extend(sent driver.Instant, seconds int64) {
	ttl := time.Duration(min(seconds, int64(maxDuration/time.Second))) * time.Second
	s.Extend(sent, ttl, ttl/3)
}

const maxDuration = time.Duration(1<<63 - 1)

// KeepAlive implements [engine.SessionServer]. concurrency.Session, and clientv3's
// KeepAlive below it, count a lease from when the answer came. A holder must count from
// before the request was sent, so there is one request at a time on a stream: a call
// that finds another one under way opens a stream of its own, which may lead to
// another member.
func (s *session) KeepAlive(ctx context.Context) error {
	stream := s.stream.Swap(nil)
	if stream == nil {
		life, cancel := context.WithCancel(clientv3.WithRequireLeader(s.Context()))
		stop := context.AfterFunc(ctx, cancel)
		opened, err := s.backend.leases.LeaseKeepAlive(life)
		if !stop() || err != nil {
			cancel()
			s.backend.conn.ResetConnectBackoff()
			return errors.Join(err, ctx.Err())
		}
		stream = &keepAliveStream{opened, cancel}
	}
	stop := context.AfterFunc(ctx, stream.close)
	err := s.keepAlive(stream)
	if !stop() || err != nil {
		stream.close()
		s.backend.conn.ResetConnectBackoff()
		return err
	}
	if other := s.stream.Swap(stream); other != nil {
		other.close()
	}
	s.collect()
	return nil
}

func (s *session) keepAlive(stream *keepAliveStream) error {
	sent := driver.Now()
	if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: s.id}); err != nil {
		return err
	}
	resp, err := stream.Recv()
	switch {
	case err != nil:
		return err
	case resp.ID != s.id:
		return errors.New("etcdlock: the answer to another keep-alive")
	case resp.TTL <= 0: // the server knows no such lease
		return errSessionEnded
	}
	s.extend(sent, resp.TTL)
	return nil
}

// Destroy implements [engine.SessionServer]: what is left in the session is freed by
// that. The server may know of it longer than we do, after an election.
func (s *session) Destroy(ctx context.Context) error {
	_, err := s.backend.leases.LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: s.id})
	if err = rpctypes.Error(err); err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return err
	}
	s.backend.forgetAll(s)
	return nil
}

// Undo implements [engine.SessionServer]. It has the turn of the key's entry, as
// [Backend.Undo] has.
func (s *session) Undo(ctx context.Context, a *driver.Acquisition) error {
	k, err := s.backend.keysOf(a)
	if err != nil {
		return err
	}
	e, err := s.backend.enter(ctx, k)
	if err != nil {
		return err
	}
	defer e.leave()
	if l := e.holder(); l != nil && l.session == s && l.keys.id == k.id {
		if err := l.Release(ctx, 0); !errors.Is(err, driver.ErrLost) {
			return err
		}
	}
	if e.session == s && e.serves(a) {
		if err := e.giveUp(ctx); err != nil {
			return err
		}
	}
	return s.erase(ctx, k, a.MayHaveRun)
}

// tombstone returns the tombstone of k in this session.
func (s *session) tombstone(k keys) string { return k.tombstones + s.suffix }

// erase frees what the acquisition of k took in this session. If an attempt of it
// may be on its way, it sees to it that this takes nothing: whatever comes late needs
// the etcd lease of the session, and lasts no longer than the tombstone.
func (s *session) erase(ctx context.Context, k keys, mayHaveRun bool) error {
	mine := k.prefix + s.suffix
	t := &pb.TxnRequest{
		Compare: []*pb.Compare{ifValue(mine, k.id)},
		Success: []*pb.RequestOp{del(mine)},
	}
	if mayHaveRun {
		t = withTombstone(t, put(s.tombstone(k), "", s.id))
	}
	_, _, err := s.backend.txn(ctx, t)
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		s.End(errSessionEnded)
		return nil
	case mayHaveRun && errors.Is(err, rpctypes.ErrNoSpace):
		// For the tombstone, that is. Without space nothing can be written late either.
		// Whoever is told tries again, until there is a tombstone.
		_, _, _ = s.backend.txn(ctx, withoutTombstone(t))
		return err
	case err == nil && mayHaveRun:
		s.buried(k)
	}
	return err
}

// withTombstone returns t with a tombstone that is written in any case.
func withTombstone(t *pb.TxnRequest, tombstone *pb.RequestOp) *pb.TxnRequest {
	t.Success, t.Failure = append(t.Success, tombstone), []*pb.RequestOp{tombstone}
	return t
}

// withoutTombstone returns what t does beside it.
func withoutTombstone(t *pb.TxnRequest) *pb.TxnRequest {
	return &pb.TxnRequest{Compare: t.Compare, Success: t.Success[:1]}
}

// buried notes the tombstone of k, which is deleted when no attempt can be under way
// any more.
func (s *session) buried(k keys) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tombstones = append(s.tombstones, tombstone{s.tombstone(k), time.Now()})
}

// collect deletes the tombstones that are old, a few at a time, in the background: a
// keep-alive that waited for it would be late where etcd does not write for the moment.
// Those that may not be deleted, as a right has ended, are left to the end of the session.
func (s *session) collect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0 // they are in the order of their age
	t := &pb.TxnRequest{}
	for n < len(s.tombstones) && n < batch && time.Since(s.tombstones[n].at) > straggler {
		t.Success = append(t.Success, del(s.tombstones[n].key))
		n++
	}
	if n == 0 || s.collecting {
		return
	}
	s.collecting = s.backend.life.Go(func(context.Context) {
		ctx, cancel := context.WithTimeout(s.Context(), s.backend.options.AttemptTimeout)
		defer cancel()
		_, _, err := s.backend.txn(ctx, t)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.collecting = false
		if err == nil || errors.Is(err, rpctypes.ErrPermissionDenied) {
			s.tombstones = s.tombstones[n:]
		} // else again, after the next keep-alive
	})
}
