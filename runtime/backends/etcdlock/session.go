package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// tombstoneTTL is how long a request without an answer may still arrive: the length of a tombstone.
const tombstoneTTL = time.Minute

var errSessionEnded = fmt.Errorf("%w: the etcd lease of its session has ended", driver.ErrLost)

// class is what acquisitions that share a session have in common. Lockers that share a Backend
// have sessions, and so keys, of their own: they queue like processes.
type class struct {
	process string
	ttl     time.Duration // as asked for, in whole seconds
}

// session is one lease of etcd, which many locks share. It implements
// [engine.SessionServer].
type session struct {
	*engine.Session
	backend *Backend
	class   class
	id      int64
	suffix  string // of the contenders' keys in it
	stream  atomic.Pointer[keepAliveStream]
}

// keepAliveStream is a stream of keep-alives. It is kept from one to the next, because
// a client with a password logs in again for each stream that it opens.
type keepAliveStream struct {
	pb.Lease_LeaseKeepAliveClient
	close context.CancelFunc
}

func (b *Backend) newSession(c class, base *engine.Session) *session {
	id := newLeaseID()
	return &session{Session: base, backend: b, class: c, id: id, suffix: strconv.FormatInt(id, 16)}
}

// Open implements [engine.SessionServer]. The session's end counts from before the
// first request: any of them may be the one that was done.
func (s *session) Open(ctx context.Context) error {
	first := driver.Now()
	ttl, err := s.backend.grant(ctx, s.id, s.class.ttl)
	if errors.Is(err, rpctypes.ErrLeaseTTLTooLarge) {
		return fmt.Errorf("%w: %w", driver.ErrInvalid, err)
	} else if err != nil {
		return err
	}
	s.Extend(first, ttl, ttl/3)
	return nil
}

// KeepAlive implements [engine.SessionServer]. concurrency.Session, and clientv3's
// KeepAlive below it, count a lease from when the answer came. A holder must count from
// before the request was sent, so there is one request at a time on a stream: a call
// that finds another one under way opens a stream of its own, which may lead to
// another member. clientv3's KeepAliveOnce sends a request again without a pause while a
// server says that it is unavailable.
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
	sent := driver.Now()
	var resp *pb.LeaseKeepAliveResponse
	err := stream.Send(&pb.LeaseKeepAliveRequest{ID: s.id})
	if err == nil || errors.Is(err, io.EOF) { // Recv says why the stream ended
		resp, err = stream.Recv()
	}
	switch {
	case err != nil:
	case resp.TTL <= 0: // the server knows no such lease
		err = errSessionEnded
	default:
		ttl := inSeconds(resp.TTL)
		s.Extend(sent, ttl, ttl/3)
	}
	if !stop() || err != nil {
		stream.close()
		s.backend.conn.ResetConnectBackoff()
		return err
	}
	if other := s.stream.Swap(stream); other != nil {
		other.close()
	}
	return nil
}

// Destroy implements [engine.SessionServer]. It frees what is left in the session, which after
// an election the server may keep for longer than we do.
func (s *session) Destroy(ctx context.Context) error {
	_, err := s.backend.leases.LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: s.id})
	if err = rpctypes.Error(err); errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return nil
	}
	return err
}
