package zklock

import (
	"context"
	"time"

	"github.com/go-zookeeper/zk"
)

// span is how long the leases of one session are, and what follows from it.
type span struct {
	lease   time.Duration // the longest of its leases
	tick    time.Duration // no less than the server's
	beat    time.Duration // how often more is proved to have lived
	timeout time.Duration // of the session
}

// spanOf returns the span for leases of ttl. Lengths that are close to each
// other share one, so that a Locker whose leases differ by its tenure has one
// session. The timeout is longer than the leases by how old a proof may be, an
// eighth and two ticks, because a lease is to have its whole length ahead when
// it is taken. most is the longest timeout that the server gives, 0 if unknown.
func spanOf(ttl, tick, most time.Duration) span {
	unit := time.Millisecond
	for unit*32 <= ttl {
		unit *= 2
	}
	lease := (ttl + unit - 1) / unit * unit
	if longest := longestLease(tick, most); most > 0 && lease > longest {
		lease = max(longest, ttl)
	}
	sp := span{lease: lease, tick: tick, beat: lease / 8}
	sp.timeout = (lease + sp.beat + 2*tick + time.Millisecond - 1) / time.Millisecond * time.Millisecond
	return sp
}

// longestLease is how long a lease may be where timeouts are most at most.
func longestLease(tick, most time.Duration) time.Duration {
	return ((most - 2*tick) * 8 / 9).Truncate(time.Millisecond) - time.Millisecond
}

// keep proves the session alive, ends the leases that nobody renews, and
// returns when the session is over. It is all that idle leases cost: two
// requests in an eighth of their length, however many they are.
func (s *session) keep() {
	timer := time.NewTimer(s.span.beat)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-s.ctx.Done():
			return
		}
		s.beat()
		s.sweep()
		if s.idle() && s.backend.forget(s) {
			s.end(errRetired)
			return
		}
		timer.Reset(s.span.beat)
	}
}

// beat makes two requests a tick apart, the second of which proves that the
// leader has heard of the session since the first: see proof. The second is a
// write that changes nothing, the deletion of what is not there, which a
// majority agrees on all the same. Where one has no answer for long, the
// connection is given up for another: the library would wait for most of the
// session's timeout.
func (s *session) beat() {
	if !s.ask(read, func(c *zk.Conn) error {
		_, _, err := c.Exists("/")
		return err
	}) {
		return
	}
	timer := time.NewTimer(s.span.tick + time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.ctx.Done():
		return
	}
	s.ask(write, func(c *zk.Conn) error { return c.Delete(s.backend.probe, -1) })
}

// ask makes a request of the session's own. It reports whether it was answered.
func (s *session) ask(k kind, do func(*zk.Conn) error) bool {
	if !closed(s.isUp()) {
		return false // the wire is looking for another server
	}
	ctx, cancel := context.WithTimeout(s.ctx, s.span.timeout/3)
	defer cancel()
	answer := make(chan error, 1)
	if !s.begin() {
		return false
	}
	go func() { // not one of the slots: callers must not stand before it
		defer s.work.Done()
		answer <- s.request(k, do)
	}()
	select {
	case err := <-answer:
		return !unanswered(err)
	case <-ctx.Done():
		if s.ctx.Err() == nil { // else leave needs the connection, to say so
			s.wire.cut()
			<-answer
		}
		return false
	}
}

// sweep ends the leases that were not renewed: the session would keep their
// nodes for as long as it lasts.
func (s *session) sweep() {
	s.mu.Lock()
	var over []*lease
	for l := range s.leases {
		if l.Deadline().Left() <= 0 {
			over = append(over, l)
		}
	}
	s.mu.Unlock()
	for _, l := range over {
		l.lapse()
	}
}
