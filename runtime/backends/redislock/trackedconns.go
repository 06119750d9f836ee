package redislock

import (
	"context"
	"fmt"
	"net"
	"sync"
	"syscall"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/runtime/internal/engine"
)

type dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// trackedConns are the connections that our clients have open or are dialing. Closing
// a client waits for what it has under way; with a server that has fallen
// silent, that may take as long as all its timeouts. So Close closes them first.
type trackedConns struct {
	life *engine.Life

	mu     sync.Mutex
	open   map[*trackedConn]struct{}
	closed bool
}

// trackedConn is one of them.
type trackedConn struct {
	net.Conn
	all *trackedConns
}

// Close implements [net.Conn]. A second call is no error: cut may have closed the
// connection before its client does.
func (w *trackedConn) Close() error {
	w.all.mu.Lock()
	_, open := w.all.open[w]
	delete(w.all.open, w)
	w.all.mu.Unlock()
	if !open {
		return nil
	}
	return w.Conn.Close()
}

// over returns dial until cut is called. Its errors wrap errDial.
func (w *trackedConns) over(dial dialer) dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(w.life.Context(), cancel)()
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errDial, err)
		}
		return w.keep(conn)
	}
}

func (w *trackedConns) keep(conn net.Conn) (net.Conn, error) {
	kept := &trackedConn{Conn: conn, all: w}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		_ = conn.Close()
		return nil, redis.ErrClosed
	}
	w.open[kept] = struct{}{}
	if raw, ok := conn.(syscall.Conn); ok { // go-redis looks through it for what the server closed
		return struct {
			*trackedConn
			syscall.Conn
		}{kept, raw}, nil
	}
	return kept, nil
}

// cut closes all connections, and those to come.
func (w *trackedConns) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for one := range w.open {
		_ = one.Conn.Close()
	}
	clear(w.open)
}
