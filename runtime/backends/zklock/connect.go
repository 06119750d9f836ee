package zklock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockgen/lockgen/runtime/driver"
)

// limits are what the servers make of session timeouts.
type limits struct {
	known chan struct{} // closed when the rest is
	err   error
	least time.Duration // minSessionTimeout
	most  time.Duration // maxSessionTimeout; 0 until a session was cut to it
	tick  time.Duration
}

// shortSession is asked for to learn what the servers give instead.
const shortSession = 200 * time.Millisecond

// session returns the session for leases of ttl, and makes it if there is none.
func (b *Backend) session(ctx context.Context, ttl time.Duration) (*session, error) {
	for {
		lim, err := b.learn(ctx)
		if err != nil {
			return nil, err
		}
		s, err := b.sessionWithin(lim, ttl)
		if err != nil {
			return nil, err
		}
		select {
		case <-s.opened:
		case <-ctx.Done():
			return nil, fmt.Errorf("%w, there is no connection to ZooKeeper yet: %w", errNotSent, errors.Join(ctx.Err(), s.wire.why()))
		}
		if !errors.Is(s.failed, errOutside) { // else the limits are known now
			return s, s.failed
		}
	}
}

func (b *Backend) sessionWithin(lim *limits, ttl time.Duration) (*session, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, driver.ErrClosed
	}
	if ttl < lim.least || lim.most > 0 && ttl > longestLease(lim.tick, lim.most) {
		upper := "no known limit"
		if lim.most > 0 {
			upper = longestLease(lim.tick, lim.most).String()
		}
		return nil, fmt.Errorf("%w: a lease of %v; with the session timeouts of this ZooKeeper (minSessionTimeout, maxSessionTimeout) zklock takes from %v to %s",
			driver.ErrInvalid, ttl, lim.least, upper)
	}
	sp := spanOf(ttl, lim.tick, lim.most)
	if s := b.sessions[sp.lease]; s != nil {
		return s, nil
	}
	s := newSession(b, sp)
	b.sessions[sp.lease] = s
	b.work.Go(s.open)
	return s, nil
}

var errOutside = errors.New("the server grants another session timeout")

// outside notes that granted is the longest timeout that the servers give.
func (b *Backend) outside(granted time.Duration) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.limits.most == 0 || granted < b.limits.most {
		b.limits.most = granted
	}
	return errOutside
}

// forget takes s out of use for new acquisitions. It reports whether it was in.
func (b *Backend) forget(s *session) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sessions[s.span.lease] != s {
		return false
	}
	delete(b.sessions, s.span.lease)
	return true
}

// learn returns the servers' limits; it asks them once.
func (b *Backend) learn(ctx context.Context) (*limits, error) {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return nil, driver.ErrClosed
	}
	lim := b.limits
	if lim == nil {
		lim = &limits{known: make(chan struct{})}
		b.limits = lim
		b.work.Go(func() { b.ask(lim) })
	}
	b.mu.Unlock()
	select {
	case <-lim.known:
		return lim, lim.err
	case <-ctx.Done():
		return nil, fmt.Errorf("%w, there is no connection to ZooKeeper yet: %w", errNotSent, ctx.Err())
	}
}

// ask finds out by a session that is too short.
func (b *Backend) ask(lim *limits) {
	ctx, cancel := context.WithTimeout(b.asking, askFor)
	defer cancel()
	granted, failed := make(chan grant, 1), make(chan error, 1)
	w := b.newWire(ctx, askFor, &watches{}, func(g grant) { offer(granted, g) }, func(err error) { offer(failed, err) })
	conn, events, err := b.connect(w, shortSession, func(zk.Event) {})
	if err == nil {
		go func() {
			defer b.work.Done()
			for range events {
			}
		}()
		select {
		case g := <-granted:
			lim.least = g.timeout
		case err = <-failed:
		case <-ctx.Done():
			err = errors.Join(errors.New("no server has answered"), w.why())
		}
		defer conn.Close()
		if err != nil {
			cancel()
			w.hangUp()
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	lim.tick = max(b.options.TickTime, lim.least/2)
	if b.options.TickTime > 0 {
		lim.tick = b.options.TickTime
	}
	if err != nil {
		lim.err = fmt.Errorf("no connection to ZooKeeper: %w", err)
		b.limits = nil // the next one asks again
	}
	close(lim.known)
}

// askFor is how long a server may take over the first handshake.
const askFor = 5 * time.Second

func offer[T any](to chan<- T, v T) {
	select {
	case to <- v:
	default:
	}
}

func (b *Backend) newWire(ctx context.Context, patient time.Duration, ws *watches, heard func(grant), failed func(error)) *wire {
	return &wire{dialer: b.options.Dialer, ctx: ctx, patient: patient, watches: ws, heard: heard, failed: failed, down: make(chan struct{})}
}

// connect has the library begin a session over w. Of its two results the second
// is to be read until it is closed, then b.work is to be told.
func (b *Backend) connect(w *wire, timeout time.Duration, event zk.EventCallback) (*zk.Conn, <-chan zk.Event, error) {
	var logger zk.Logger = silent{}
	if b.options.Logger != nil {
		logger = b.options.Logger
	}
	b.work.Add(1)
	conn, events, err := zk.Connect(b.servers, timeout,
		zk.WithHostProvider(w), zk.WithDialer(w.dial), zk.WithEventCallback(event), zk.WithLogger(logger))
	if err != nil {
		b.work.Done()
	}
	return conn, events, err
}
