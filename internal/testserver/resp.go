package testserver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

// ServerError is an error reply of Redis, unchanged: "WRONGTYPE Operation…".
type ServerError string

func (e ServerError) Error() string { return string(e) }

const commandTimeout = 15 * time.Second

// Command sends one command on a new connection and returns the reply:
// string, int64, nil, or []any of these; an error reply is a ServerError. It does not use
// the client library under test, so faults of that library do not affect it.
func Command(ctx context.Context, addr string, args ...string) (any, error) {
	c, err := Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.Do(ctx, args...)
}

// Command sends one command to the instance, as its User if a Password is set.
func (i *Instance) Command(ctx context.Context, args ...string) (any, error) {
	c, err := Dial(ctx, i.Addr())
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if i.Password != "" {
		auth := []string{"AUTH", i.Password}
		if i.User != "" {
			auth = []string{"AUTH", i.User, i.Password}
		}
		if _, err := c.Do(ctx, auth...); err != nil {
			return nil, err
		}
	}
	return c.Do(ctx, args...)
}

// Conn is one connection to a Redis, for commands that belong together
// (AUTH, SELECT, MULTI). It is not safe for concurrent use.
type Conn struct {
	conn net.Conn
	r    *bufio.Reader
}

// Dial connects to the Redis at addr.
func Dial(ctx context.Context, addr string) (*Conn, error) {
	dialer := net.Dialer{Timeout: commandTimeout}
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &Conn{conn, bufio.NewReader(conn)}, nil
}

// Close closes the connection.
func (c *Conn) Close() { _ = c.conn.Close() }

// Do sends one command and returns its reply, as Command does. It gives up when
// ctx ends, or after five seconds.
func (c *Conn) Do(ctx context.Context, args ...string) (any, error) {
	if err := c.conn.SetDeadline(time.Now().Add(commandTimeout)); err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { _ = c.conn.SetDeadline(time.Unix(1, 0)) })()
	reply, err := c.roundTrip(args)
	if err != nil && ctx.Err() != nil {
		err = errors.Join(ctx.Err(), err)
	}
	return reply, err
}

func (c *Conn) roundTrip(args []string) (any, error) {
	request := fmt.Appendf(nil, "*%d\r\n", len(args))
	for _, arg := range args {
		request = fmt.Appendf(request, "$%d\r\n%s\r\n", len(arg), arg)
	}
	if _, err := c.conn.Write(request); err != nil {
		return nil, err
	}
	return c.read()
}

// read parses one reply of RESP2, which a connection uses until it sends HELLO 3.
func (c *Conn) read() (any, error) {
	line, err := c.r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	if len(line) < 3 {
		return nil, fmt.Errorf("reply %q", line)
	}
	kind, text := line[0], line[1:len(line)-2]
	switch kind {
	case '+':
		return text, nil
	case '-':
		return nil, ServerError(text)
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("reply %q: %w", line, err)
	}
	switch {
	case kind == ':':
		return n, nil
	case kind == '$' && n < 0, kind == '*' && n < 0:
		return nil, nil
	case kind == '$':
		body := make([]byte, n+2)
		_, err := io.ReadFull(c.r, body)
		return string(body[:n]), err
	case kind == '*':
		return c.readArray(int(n))
	}
	return nil, fmt.Errorf("reply %q", line)
}

func (c *Conn) readArray(n int) (any, error) {
	values := make([]any, n)
	for i := range values {
		v, err := c.read()
		var refused ServerError
		if errors.As(err, &refused) { // a failed command of an EXEC
			v, err = refused, nil
		}
		if err != nil {
			return nil, err
		}
		values[i] = v
	}
	return values, nil
}
