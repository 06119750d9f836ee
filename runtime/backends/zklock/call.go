package zklock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockgen/lockgen/runtime/driver"
)

// call has do make one request, and returns its error, or when ctx ends: the
// library itself hears of no context. do goes on then, until the server or the
// connection's end has answered it, so it must note by itself what is to be
// known later. The error is errNotSent where nothing was sent, errNoAnswer where
// the request may have run or may yet run, and else the server's.
//
// One request of a session is behind another that was answered, or that the
// library had taken before; two that are under way have no order.
func (s *session) call(ctx context.Context, k kind, do func(*zk.Conn) error) error {
	if err := s.await(ctx); err != nil {
		return err
	}
	select {
	case s.slots <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("%w, %d requests are under way: %w", errNotSent, callsAtOnce, ctx.Err())
	}
	answer := make(chan error, 1)
	if !s.begin() {
		<-s.slots
		return fmt.Errorf("%w: %w", errNotSent, s.over())
	}
	go func() {
		defer s.work.Done()
		answer <- s.request(k, do)
		<-s.slots
	}()
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", errNoAnswer, ctx.Err())
	}
}

// request is call without a context: it ends with the connection at the latest.
func (s *session) request(k kind, do func(*zk.Conn) error) error {
	at := time.Now()
	sent := driver.Now()
	err := do(s.conn)
	if over := s.over(); over != nil {
		// The library may have begun a session of its own by then, and told its
		// server. What is under that goes with it.
		return fmt.Errorf("%w: %w", errNoAnswer, over)
	}
	if !answered(err) {
		return fmt.Errorf("%w: %w", errNoAnswer, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proof.answered(sent, at, k == write && committed(err)) {
		close(s.news)
		s.news = make(chan struct{})
	}
	return err
}

// await waits for a connection, for a while.
func (s *session) await(ctx context.Context) error {
	up := s.isUp()
	if s.over() == nil && closed(up) {
		return nil
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-up:
		return nil
	case <-s.ctx.Done():
		return fmt.Errorf("%w: %w", errNotSent, s.over())
	case <-ctx.Done():
		return fmt.Errorf("%w, there is no connection to ZooKeeper: %w", errNotSent, errors.Join(ctx.Err(), s.wire.why()))
	case <-timer.C:
		return fmt.Errorf("%w, there has been no connection to ZooKeeper for %v: %w", errNotSent, patience, s.wire.why())
	}
}

// answered reports whether err is what a server said, or nil.
func answered(err error) bool {
	for _, none := range []error{zk.ErrConnectionClosed, zk.ErrClosing, zk.ErrNoServer, zk.ErrSessionExpired, zk.ErrSessionMoved} {
		if errors.Is(err, none) {
			return false
		}
	}
	return true
}

// committed reports whether err is what a write ends with that a majority has
// taken. The leader has the refusals of these agreed as well.
func committed(err error) bool {
	for _, yes := range []error{nil, zk.ErrNoNode, zk.ErrNodeExists, zk.ErrNotEmpty, zk.ErrNoAuth} {
		if errors.Is(err, yes) {
			return true
		}
	}
	return false
}

func unanswered(err error) bool { return errors.Is(err, errNoAnswer) }

// explained says of a server's refusal what the Locker's caller is to know of it.
func explained(err error, what, path string) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, zk.ErrNoAuth):
		return fmt.Errorf("zookeeper refuses to %s at %s; give Options.Auth whose ACL there allows create, delete and read: %w", what, path, err)
	case errors.Is(err, zk.ErrInvalidACL):
		return fmt.Errorf("zookeeper takes Options.ACL for invalid (a scheme \"auth\" needs Options.Auth): %w", err)
	case errors.Is(err, zk.ErrNoChildrenForEphemerals):
		return fmt.Errorf("%w: %s is an ephemeral node, and no lock's directory: %w", driver.ErrConflict, path, err)
	case final(err) || errors.Is(err, driver.ErrInvalid) || errors.Is(err, driver.ErrClosed):
		return err
	case unanswered(err):
		return fmt.Errorf("%w: zookeeper: %s at %s: %w", driver.ErrIndeterminate, what, path, err)
	}
	return fmt.Errorf("zookeeper: %s at %s: %w", what, path, err)
}

// foreign says that something that is no lock's directory is where one should be.
func foreign(dir string, stat *zk.Stat) error {
	return fmt.Errorf("%w: %s holds %d bytes of data, which a lock's directory does not; nothing was changed: "+
		"use another key or Options.Root, or empty that node if it is for locks", driver.ErrConflict, dir, stat.DataLength)
}

// final reports whether err will be the same however often it is tried.
func final(err error) bool {
	return errors.Is(err, driver.ErrConflict) || errors.Is(err, errTooManyElections)
}
