package zklock

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockgen/lockgen/runtime/driver"
)

// dialTimeout bounds the dialing of one server.
const dialTimeout = time.Second

// wire is how the client library reaches the servers for one session. The
// library dials by itself and for ever, waits for a silent server's handshake
// for seven times the session's timeout, keeps to itself what the server has
// granted, and begins a new session under the same Conn when one has expired.
// All that is settled here, below it: wire is its HostProvider and its Dialer.
type wire struct {
	dialer  zk.Dialer
	ctx     context.Context // ends with the session: nothing is dialed after that
	patient time.Duration   // how long a server may take over another handshake
	heard   func(g grant)   // called when a server has answered the handshake
	failed  func(err error) // called when all servers were tried in vain
	watches *watches        // that the library asks for again on another connection

	mu      sync.Mutex
	servers []string
	at      int
	granted bool          // the session has stood
	tried   int           // servers since the last one that granted the session
	last    error         // why the last one did not
	met     bool          // one of them took the connection, at least
	link    *link         // the connection that was dialed last
	down    chan struct{} // closed when the library has seen that the session is over
}

// roundsAtLeast is how often all servers are tried before there is no session:
// those that elect a leader take connections, and end them. Where nobody does,
// once is enough.
const roundsAtLeast = 5

// grant is a server's answer to the handshake.
type grant struct {
	session int64 // 0: it has expired
	timeout time.Duration
	sent    driver.Instant // from before it was dialed
	at      time.Time
}

// Init implements zk.HostProvider. Names are resolved whenever they are dialed.
func (w *wire) Init(servers []string) error {
	w.servers, w.at = servers, -1
	return nil
}

// Len implements zk.HostProvider.
func (w *wire) Len() int { return len(w.servers) }

// Connected implements zk.HostProvider.
func (w *wire) Connected() {}

// Next implements zk.HostProvider: the servers in turn. It never says that all
// have been tried, on which the library would sleep for a second, except to a
// session that is over, because only then does the library look whether it is
// to end.
func (w *wire) Next() (server string, retryStart bool) {
	w.mu.Lock()
	w.at = (w.at + 1) % len(w.servers)
	server = w.servers[w.at]
	var err error
	if rounds := w.tried / len(w.servers); rounds > 0 && (!w.met || rounds >= roundsAtLeast) {
		err = w.last
	}
	w.tried++
	over := w.ctx.Err() != nil
	if over && !closed(w.down) {
		close(w.down)
	}
	w.mu.Unlock()
	if err != nil {
		w.failed(err)
	}
	return server, over
}

// dial is the library's zk.Dialer.
func (w *wire) dial(network, address string, _ time.Duration) (net.Conn, error) {
	if err := w.rest(); err != nil {
		return nil, err
	}
	l := &link{wire: w, address: address, sent: driver.Now(), at: time.Now()}
	conn, err := w.open(network, address)
	if err != nil {
		w.note(err)
		return nil, err
	}
	l.Conn = conn
	if w.watches.any() {
		l.rearm = newRearm()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ctx.Err() != nil {
		return nil, errors.Join(w.ctx.Err(), conn.Close())
	}
	w.link, w.met = l, true
	return l, nil
}

func (w *wire) open(network, address string) (net.Conn, error) {
	if w.dialer != nil {
		return w.dialer(network, address, dialTimeout)
	}
	d := net.Dialer{Timeout: dialTimeout}
	return d.DialContext(w.ctx, network, address)
}

// rest waits before a server is tried again, longer each time, so that servers
// that elect a leader, or are down, are not stormed.
func (w *wire) rest() error {
	w.mu.Lock()
	rounds := (w.tried - 1) / len(w.servers)
	w.mu.Unlock()
	if rounds == 0 {
		return w.ctx.Err()
	}
	timer := time.NewTimer(min(10*time.Millisecond<<min(rounds, 10), 500*time.Millisecond))
	defer timer.Stop()
	select {
	case <-timer.C:
		return w.ctx.Err()
	case <-w.ctx.Done():
		return w.ctx.Err()
	}
}

func (w *wire) note(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = err
}

// why returns what stood in the way of a connection last.
func (w *wire) why() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

// cut closes the connection, if there is one, so that another is made: the
// library alone would wait for a silent server for two thirds of the timeout.
func (w *wire) cut() {
	w.mu.Lock()
	l := w.link
	w.mu.Unlock()
	if l != nil {
		_ = l.Close()
	}
}

// patience is how long a server may take over the handshake: not long where a
// session runs out meanwhile.
func (w *wire) patience() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.granted {
		return w.patient
	}
	return askFor / time.Duration(len(w.servers))
}

// hangUp ends the connection of a session that is over, and waits until the
// library rests in Next: only there does it hear of its closing at once.
func (w *wire) hangUp() {
	w.cut()
	timer := time.NewTimer(farewell)
	defer timer.Stop()
	select {
	case <-w.down:
	case <-timer.C:
	}
}

// answered tells of the handshake's answer.
func (w *wire) answered(g grant) {
	w.mu.Lock()
	w.tried, w.last, w.met, w.granted = 0, nil, false, true
	w.mu.Unlock()
	w.heard(g)
}

// link is one connection. It reads along until the handshake is answered,
// because the library does not say what timeout was granted.
type link struct {
	net.Conn
	wire    *wire
	address string
	sent    driver.Instant
	at      time.Time
	head    []byte // what was read until then
	known   bool
	rearm   *rearm // nil where there are no watches yet
}

// A handshake's answer: its length, the protocol, the timeout in ms, the session.
const answerHead = 4 + 4 + 4 + 8

func (l *link) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	if l.known {
		if l.rearm != nil && n > 0 {
			l.rearm.await()
		}
		return n, err
	}
	l.head = append(l.head, p[:n]...)
	switch {
	case len(l.head) >= answerHead:
		g := grant{
			session: int64(binary.BigEndian.Uint64(l.head[12:])),
			timeout: time.Duration(binary.BigEndian.Uint32(l.head[8:])) * time.Millisecond,
			sent:    l.sent,
			at:      l.at,
		}
		l.known, l.head = true, nil
		if g.session != 0 && g.timeout <= 0 {
			// A server that is overtaken by the session's end; the library would
			// make a ticker of no length of it, and bring the process down.
			err := fmt.Errorf("%s gave a session of no length", l.address)
			l.wire.note(err)
			return 0, errors.Join(err, l.Conn.Close())
		}
		l.wire.answered(g)
	case err != nil:
		l.wire.note(fmt.Errorf("%s gave no session, as a server does that has no quorum, speaks TLS or is no ZooKeeper: %w", l.address, err))
	}
	return n, err
}

// Write never fails: it closes the connection instead, which the reader notices.
// The library answers a request twice whose writing failed, and a third time if
// it is closed meanwhile, into a channel with room for two (one, for
// credentials): its goroutine would then stand there for ever.
func (l *link) Write(p []byte) (int, error) {
	if l.rearm != nil && l.known {
		l.rearm.wrote(p)
	}
	if _, err := l.Conn.Write(p); err != nil {
		_ = l.Conn.Close()
	}
	return len(p), nil
}

// SetReadDeadline keeps the wait for the handshake short.
func (l *link) SetReadDeadline(t time.Time) error {
	if most := time.Now().Add(l.wire.patience()); !l.known && (t.IsZero() || t.After(most)) {
		t = most
	}
	return l.Conn.SetReadDeadline(t)
}

// silent is a zk.Logger that keeps the library from writing to the log of the
// user's process.
type silent struct{}

func (silent) Printf(string, ...any) {}
