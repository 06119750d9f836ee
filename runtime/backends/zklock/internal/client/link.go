package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

const (
	eventXid     = -1 // the number of a frame that answers no request
	authXid      = -4
	eventDeleted = 2
)

// shakeHands begins the session, or goes on with it over conn.
func (c *Client) shakeHands(conn net.Conn, r *bufio.Reader) (timeout time.Duration, err error) {
	old, password := c.Session()
	var e encoder
	e.int32(0) // the protocol
	e.int64(c.lastZxid)
	e.int32(int32(c.config.Timeout.Milliseconds()))
	e.int64(old)
	e.bytes(password)
	e = append(e, 0) // not read-only
	if _, err := conn.Write(frame(e)); err != nil {
		return 0, err
	}
	answer, err := readFrame(r, maxHandshake)
	if err != nil {
		return 0, err
	}
	d := decoder{rest: answer}
	d.int32()
	timeout = time.Duration(d.int32()) * time.Millisecond
	id, password := d.int64(), d.bytes()
	switch {
	case d.short:
		return 0, errShort
	case old != 0 && id != old:
		return 0, ErrExpired
	case id == 0:
		return 0, errors.New("refused")
	case timeout <= 0: // the session ended while the server confirmed it
		return 0, errors.New("a session of no length")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.id, c.password = id, password
	return timeout, nil
}

// identify shows one identity to the server.
func (c *Client) identify(conn net.Conn, r *bufio.Reader, one Identity) error {
	var e encoder
	e.int32(0)
	e.string(one.Scheme)
	e.bytes(one.Auth)
	if _, err := conn.Write(requestFrame(authXid, opAuth, e)); err != nil {
		return err
	}
	answer, err := readFrame(r, maxHandshake)
	if err != nil { // the server does not know the scheme
		return fmt.Errorf("%w of scheme %q: it ended the connection: %w", ErrAuth, one.Scheme, err)
	}
	d := decoder{rest: answer}
	d.take(4 + 8)
	if err := errorOf(d.int32()); err != nil {
		return fmt.Errorf("%w of scheme %q: %w", ErrAuth, one.Scheme, err)
	}
	return nil
}

// closeSession ends the session at the server, and closes the connection soon after. It works
// also if the server's answers are lost on the way, even that to the handshake: the server
// reads what comes after it.
func (c *Client) closeSession(conn net.Conn) {
	time.AfterFunc(closeTimeout, func() { _ = conn.Close() })
	_, _ = conn.Write(requestFrame(1<<30, opClose, nil))
}

// serve deals with requests over conn until it ends, and returns why it did.
func (c *Client) serve(ctx context.Context, conn net.Conn, r *bufio.Reader) error {
	over, stop := context.WithCancel(ctx)
	c.begin(conn)
	c.config.Tried(nil)
	c.wasConnected = true
	var writer sync.WaitGroup
	writer.Go(func() { c.write(over, conn) })
	var err error
	for err == nil {
		var body []byte
		if body, err = readFrame(r, maxAnswer); err == nil {
			err = c.receive(&decoder{rest: body})
		}
	}
	stop()
	conn.Close()
	writer.Wait()
	c.end(err)
	return err
}

// begin lets requests in.
func (c *Client) begin(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conn, c.lastError = conn, nil
	close(c.up)
}

// end lets no more requests in. Those under way end with err, and all watches fire.
func (c *Client) end(err error) {
	c.mu.Lock()
	all, watches := c.pending, c.watches
	c.pending, c.out, c.conn, c.lastError, c.watches = nil, nil, nil, err, map[string][]*Watch{}
	c.up = make(chan struct{})
	c.mu.Unlock()
	for _, one := range all {
		one.done(Answer{Err: fmt.Errorf("%w: %w", ErrNoAnswer, err)})
	}
	for _, some := range watches {
		tell(some, Changed)
	}
}

// write writes what is to be sent, until the connection ends.
func (c *Client) write(over context.Context, conn net.Conn) {
	for {
		select {
		case <-c.wake:
		case <-over.Done():
			return
		}
		c.mu.Lock()
		out := c.out
		c.out = nil
		c.mu.Unlock()
		_ = conn.SetWriteDeadline(time.Now().Add(c.answerTimeout))
		if _, err := conn.Write(out); err != nil {
			_ = conn.Close() // the reader notices
			return
		}
	}
}

// receive deals with one frame.
func (c *Client) receive(d *decoder) error {
	xid, zxid, code := d.int32(), d.int64(), d.int32()
	if xid == eventXid {
		kind, _, path := d.int32(), d.int32(), string(d.bytes())
		if d.short {
			return errShort
		}
		state := int32(Changed)
		if kind == eventDeleted {
			state = Deleted
		}
		c.changed(path, state)
		return nil
	}
	one, err := c.answered(xid)
	if err != nil {
		return err
	}
	a := Answer{Err: errorOf(code)}
	if code == 0 {
		a = one.r.decode(d)
	}
	if d.short {
		a = Answer{Err: fmt.Errorf("%w: %w", ErrNoAnswer, errShort)}
	} else if zxid > 0 {
		c.lastZxid = zxid
	}
	if a.Err != nil && one.r.watch != nil {
		c.watchFailed(one.r.watch, a.Err)
	}
	one.done(a)
	if d.short {
		return errShort
	}
	return nil
}

// answered removes and returns the oldest request under way, to which the answer numbered xid
// must be.
func (c *Client) answered(xid int32) (one call, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.pending) == 0 || c.pending[0].xid != xid {
		return one, fmt.Errorf("an answer numbered %d, which is not due", xid)
	}
	one = c.pending[0]
	c.pending[0] = call{}
	c.pending = c.pending[1:]
	c.setReadDeadlineLocked()
	return one, nil
}

// setReadDeadlineLocked ends the connection if the next answer takes longer than answerTimeout.
func (c *Client) setReadDeadlineLocked() {
	var end time.Time
	if len(c.pending) > 0 {
		end = time.Now().Add(c.answerTimeout)
	}
	_ = c.conn.SetReadDeadline(end)
}
