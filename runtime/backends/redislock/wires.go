package redislock

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

type dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// wires are the connections that our clients have open or are dialing. Closing
// a client waits for what it has under way; with a server that has fallen
// silent, that may take as long as all its timeouts. So Close cuts them first.
type wires struct {
	alive context.Context
	end   context.CancelFunc

	mu   sync.Mutex
	open map[*wire]struct{}
}

func newWires() *wires {
	w := &wires{open: map[*wire]struct{}{}}
	w.alive, w.end = context.WithCancel(context.Background())
	return w
}

// wire is one connection.
type wire struct {
	net.Conn
	all    *wires
	opened time.Time
	cut    atomic.Bool // leads to the wrong server: whoever uses it shall dial anew
	direct atomic.Bool // its user looks at cut before each use
}

// direct tells conn's wire that its user asks isCut, so that it need not be
// closed under a call that may yet be answered.
func direct(conn net.Conn) {
	if w, ok := conn.(interface{ isDirect() }); ok {
		w.isDirect()
	}
}

func (w *wire) isDirect() { w.direct.Store(true) }

// isCut reports whether conn is of no use any more, as we know ourselves.
func isCut(conn net.Conn) bool {
	w, ok := conn.(interface{ wasCut() bool })
	return ok && w.wasCut()
}

func (w *wire) wasCut() bool { return w.cut.Load() }

// Close implements [net.Conn]. A second call is no error: whoever cuts a
// connection is not the one that closes it in the end.
func (w *wire) Close() error {
	w.all.mu.Lock()
	_, open := w.all.open[w]
	delete(w.all.open, w)
	w.all.mu.Unlock()
	if !open {
		return nil
	}
	return w.Conn.Close()
}

// over returns dial for as long as w lives. It never fails: see [dead].
func (w *wires) over(dial dialer) dialer {
	return softly(func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(w.alive, cancel)()
		if w.alive.Err() != nil {
			return nil, redis.ErrClosed
		}
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return w.keep(conn)
	})
}

// softly returns dial such that what it fails with is said by the connection.
func softly(dial dialer) dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return dead{fmt.Errorf("%w: %w", errNotSent, err)}, nil
		}
		return conn, nil
	}
}

// dead is a connection that could not be made. A dialer that fails would have
// go-redis refuse all calls, after as many failures as its pool has places
// (one, for most of ours), until a goroutine that tries once a second has
// found the server again; and that outlives the client's Close.
type dead struct{ err error }

func (d dead) Read([]byte) (int, error)       { return 0, d.err }
func (d dead) Write([]byte) (int, error)      { return 0, d.err }
func (dead) Close() error                     { return nil }
func (dead) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (dead) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (dead) SetDeadline(time.Time) error      { return nil }
func (dead) SetReadDeadline(time.Time) error  { return nil }
func (dead) SetWriteDeadline(time.Time) error { return nil }

func (w *wires) keep(conn net.Conn) (net.Conn, error) {
	kept := &wire{Conn: conn, all: w, opened: time.Now()}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.alive.Err() != nil {
		_ = conn.Close()
		return nil, redis.ErrClosed
	}
	w.open[kept] = struct{}{}
	if raw, ok := conn.(syscall.Conn); ok { // go-redis looks through it for what the server closed
		return struct {
			*wire
			syscall.Conn
		}{kept, raw}, nil
	}
	return kept, nil
}

// cutBefore closes the connections that were made before then: go-redis makes
// new ones when it finds out.
func (w *wires) cutBefore(then time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for one := range w.open {
		if one.opened.Before(then) {
			one.cut.Store(true)
			if one.direct.Load() {
				continue
			}
			_ = one.Conn.Close()
			delete(w.open, one)
		}
	}
}

// cut closes all connections, and those to come.
func (w *wires) cut() {
	w.end()
	w.mu.Lock()
	defer w.mu.Unlock()
	for one := range w.open {
		one.cut.Store(true)
		_ = one.Conn.Close()
	}
	clear(w.open)
}
