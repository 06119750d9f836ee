package etcdlock

import (
	"context"
	"errors"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockgen/lockgen/runtime/driver"
)

// keeper is the stream of keep-alives of one session. concurrency.Session, and
// clientv3's KeepAlive below it, count a lease from when the answer came; a
// holder must count from before the request was sent. One request is under way
// on a stream at a time, so that its answer is known by its place.
type keeper struct {
	ctx    context.Context // of the stream
	cancel context.CancelFunc
	stream pb.Lease_LeaseKeepAliveClient // nil before the first request
}

// cancelAfter has the stream cancelled after d. No timer is left if that is done before,
// by the end of the session.
func (k *keeper) cancelAfter(d time.Duration) {
	t := time.AfterFunc(d, k.cancel)
	context.AfterFunc(k.ctx, func() { t.Stop() })
}

// keepAlive keeps the session alive until it ends: a third of its ttl after the
// last time, or when asked, and again soon after a failure.
func (s *session) keepAlive() {
	timer := time.NewTimer(s.length() / 3)
	defer timer.Stop()
	for failed := false; ; {
		select {
		case <-timer.C:
		case <-s.poke:
			if failed { // whoever waits asks as often as it likes
				select {
				case <-timer.C:
				case <-s.ended.Done():
				}
			}
		case <-s.ended.Done():
		}
		switch {
		case !s.alive():
			return
		case s.idle():
			s.end(errIdle)
			return
		}
		err := s.keepAliveOnce()
		if s.ended.Err() != nil {
			return
		}
		s.announce()
		failed = err != nil
		wait := s.length() / 3
		if failed {
			s.backend.conn.ResetConnectBackoff()
			wait = min(s.length()/20, 250*time.Millisecond)
		} else {
			s.sweep()
		}
		timer.Reset(max(min(wait, s.left()), 0))
	}
}

// keepAliveOnce sends one keep-alive and waits for its answer, for a sixth of the
// ttl: then another stream is to be tried, which may lead to another member. An
// answer that comes later counts all the same.
func (s *session) keepAliveOnce() error {
	k := s.keeping
	if k == nil {
		k = &keeper{}
		k.ctx, k.cancel = context.WithCancel(clientv3.WithRequireLeader(s.ended))
	}
	s.keeping = nil
	answered, late := make(chan error, 1), make(chan struct{})
	s.backend.background(func() {
		err := s.exchange(k)
		answered <- err
		select {
		case <-late:
			s.announce()
			k.cancel()
		default:
		}
	})
	limit := time.NewTimer(max(s.length()/6, 100*time.Millisecond))
	defer limit.Stop()
	select {
	case err := <-answered:
		if err != nil {
			k.cancel()
			return err
		}
		s.keeping = k
		return nil
	case <-limit.C:
		close(late)
		k.cancelAfter(s.length())
		return errLate
	case <-s.ended.Done():
		k.cancel()
		return errSessionEnded
	}
}

var errLate = errors.New("no answer to a keep-alive yet")

func (s *session) exchange(k *keeper) (err error) {
	if k.stream == nil {
		if k.stream, err = s.backend.leases.LeaseKeepAlive(k.ctx); err != nil {
			return err
		}
	}
	sent := driver.Now()
	if err := k.stream.Send(&pb.LeaseKeepAliveRequest{ID: s.id}); err != nil {
		return err
	}
	resp, err := k.stream.Recv()
	switch {
	case err != nil:
		return err
	case resp.ID != s.id:
		return errors.New("etcdlock: the answer to another keep-alive")
	case resp.TTL <= 0: // the server knows no such lease
		s.end(errSessionEnded)
		return errSessionEnded
	}
	s.extend(sent, resp.TTL)
	return nil
}

// announce tells those who wait for a keep-alive that one was tried.
func (s *session) announce() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.tried)
	s.tried = make(chan struct{})
}

// ask has a keep-alive sent now, or soon if the last one failed, and returns what
// is closed when it was tried.
func (s *session) ask() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case s.poke <- struct{}{}:
	default:
	}
	return s.tried
}

// freshen waits until the session lasts for d, or ctx ends.
func (s *session) freshen(ctx context.Context, d time.Duration) error {
	for s.left() < d {
		select {
		case <-s.ask():
		case <-s.ended.Done():
			return driver.ErrLost
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// idle reports whether nobody has used the session for long. From then on nobody
// can: it is out of the table.
func (s *session) idle() bool {
	b := s.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users > 0 || time.Since(s.unused) < idleFor*s.length() || b.sessions[s.class] != s {
		return false
	}
	delete(b.sessions, s.class)
	b.dying[s] = struct{}{}
	return true
}
