package vnet

import (
	"context"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// dialLimit is how long Dial tries to connect, the same as go-redis's dialer.
const dialLimit = 5 * time.Second

// Dial makes a connection. When the request for it arrives, Dial passes the other end and
// the flow of the connection to accept. It returns when the server's answer has
// arrived, when ctx ends, or after 5 s.
func (p *Path) Dial(ctx context.Context, accept func(*End, *Flow) bool) (net.Conn, error) {
	if p.isDead() {
		return nil, &net.OpError{Op: "dial", Net: "vnet", Err: syscall.ENETDOWN}
	}
	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	near, far := newEnd(), newEnd()
	flow := p.NewFlow(func(tell bool) {
		near.Fail(syscall.ECONNRESET)
		if tell {
			far.Fail(io.EOF)
		}
	})
	near.flow, near.out, near.peer = flow, Requests, far
	far.flow, far.out, far.peer = flow, Replies, near
	answer := make(chan bool, 1)
	flow.Send(Requests, func() {
		ok := !p.isRefused() && accept(far, flow)
		flow.Send(Replies, func() { answer <- ok })
	})
	var err error
	select {
	case ok := <-answer:
		if ok {
			return near, nil
		}
		err = syscall.ECONNREFUSED
	case <-near.Failed():
		err = syscall.ECONNRESET
	case <-ctx.Done():
		err = ctx.Err()
		_ = near.Close()
	}
	return nil, &net.OpError{Op: "dial", Net: "vnet", Err: err}
}

// End is one end of a connection. Its Write never blocks, because the buffer has no limit.
type End struct {
	flow *Flow
	out  Direction
	peer *End

	mu       sync.Mutex // guards the rest
	buf      []byte
	err      error         // the result of Read when buf is empty
	closed   bool          // closed by its own side
	changed  chan struct{} // closed at each change
	broken   chan struct{} // closed when err is set
	deadline time.Time
}

func newEnd() *End { return &End{changed: make(chan struct{}), broken: make(chan struct{})} }

// Failed returns a channel that is closed when the other side has closed, or the
// connection was cut.
func (e *End) Failed() <-chan struct{} { return e.broken }

// wake wakes readers after a change. The end's mutex must be held.
func (e *End) wake() {
	close(e.changed)
	e.changed = make(chan struct{})
}

// feed appends data that has arrived.
func (e *End) feed(p []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err != nil || e.closed {
		return
	}
	e.buf = append(e.buf, p...)
	e.wake()
}

// Fail makes Read return err after the data that has arrived.
func (e *End) Fail(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err != nil {
		return
	}
	e.err = err
	close(e.broken)
	e.wake()
}

// Read implements [net.Conn].
func (e *End) Read(p []byte) (int, error) {
	for {
		e.mu.Lock()
		switch {
		case e.closed:
			e.mu.Unlock()
			return 0, net.ErrClosed
		case len(e.buf) > 0:
			n := copy(p, e.buf)
			e.buf = e.buf[n:]
			e.mu.Unlock()
			return n, nil
		case e.err != nil:
			e.mu.Unlock()
			return 0, e.err
		}
		left := time.Duration(-1)
		if !e.deadline.IsZero() {
			left = max(time.Until(e.deadline), 0)
		}
		changed := e.changed
		e.mu.Unlock()
		if left == 0 {
			return 0, os.ErrDeadlineExceeded
		}
		await(changed, left)
	}
}

// await waits until changed is closed, or for d if d is not negative.
func await(changed <-chan struct{}, d time.Duration) {
	if d < 0 {
		<-changed
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	}
}

// Write implements [net.Conn].
func (e *End) Write(p []byte) (int, error) {
	e.mu.Lock()
	closed, err := e.closed, e.err
	e.mu.Unlock()
	switch {
	case closed:
		return 0, net.ErrClosed
	case err != nil:
		return 0, &net.OpError{Op: "write", Net: "vnet", Err: syscall.EPIPE}
	}
	sent := append([]byte(nil), p...)
	e.flow.Send(e.out, func() { e.peer.feed(sent) })
	return len(p), nil
}

// Close implements [net.Conn]. Data that was written before still arrives.
func (e *End) Close() error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return net.ErrClosed
	}
	e.closed = true
	e.wake()
	e.mu.Unlock()
	e.flow.Send(e.out, func() { e.peer.Fail(io.EOF) })
	return nil
}

// SetReadDeadline implements [net.Conn].
func (e *End) SetReadDeadline(t time.Time) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.deadline = t
	e.wake()
	return nil
}

// SetWriteDeadline implements [net.Conn]. A write takes no time.
func (e *End) SetWriteDeadline(time.Time) error { return nil }

// SetDeadline implements [net.Conn].
func (e *End) SetDeadline(t time.Time) error { return e.SetReadDeadline(t) }

// addr is the address of both ends.
type addr struct{}

func (addr) Network() string { return "vnet" }
func (addr) String() string  { return "sim:6379" }

// LocalAddr implements [net.Conn].
func (e *End) LocalAddr() net.Addr { return addr{} }

// RemoteAddr implements [net.Conn].
func (e *End) RemoteAddr() net.Addr { return addr{} }
