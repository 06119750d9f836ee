package backendtest

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"
)

// Network is the [Faults] of a client that speaks TCP: proxies, one before each
// server, that pass on bytes and know nothing of what they mean. Give the
// client the proxies' addresses, or have it dial by [Network.DialContext]. A
// Network is one client's: its faults are that client's alone.
type Network struct {
	t     testing.TB
	tasks sync.WaitGroup

	mu      sync.Mutex // guards the rest, and the fields of its links
	routes  map[string]net.Listener
	links   map[*link]bool
	closed  bool
	silent  bool
	refuses bool // new connections are cut
	deaf    bool // answers are lost
	delay   time.Duration
	holding *held
}

// NewNetwork returns a Network without faults. It ends with t, after the
// clean-ups that were registered with t later.
func NewNetwork(t testing.TB) *Network {
	n := &Network{t: t, routes: map[string]net.Listener{}, links: map[*link]bool{}}
	t.Cleanup(n.close)
	return n
}

func (n *Network) close() {
	n.mu.Lock()
	n.closed = true
	for _, l := range n.routes {
		_ = l.Close()
	}
	for l := range n.links {
		l.reset()
	}
	n.mu.Unlock()
	n.tasks.Wait()
}

// Addr returns the address, "127.0.0.1:port", that leads to server,
// "host:port", by way of n: the same for the same server. A nil Network stands
// for none, and leads there without a way round.
func (n *Network) Addr(server string) string {
	if n == nil {
		return server
	}
	n.t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	listener := n.routes[server]
	if listener == nil {
		var err error
		if listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			n.t.Fatalf("backendtest: a proxy before %s: %v", server, err)
		}
		if n.closed {
			_ = listener.Close()
		}
		n.routes[server] = listener
		n.tasks.Go(func() { n.serve(listener, server) })
	}
	return listener.Addr().String()
}

// DialContext connects to server by way of n. It has the form that clients take
// for a dialer.
func (n *Network) DialContext(ctx context.Context, network, server string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, network, n.Addr(server))
}

func (n *Network) serve(listener net.Listener, server string) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		if n.refusing() {
			_ = conn.(*net.TCPConn).SetLinger(0)
			_ = conn.Close()
			continue
		}
		upstream, err := net.Dial("tcp", server)
		if err != nil {
			_ = conn.Close()
			continue
		}
		n.join(conn.(*net.TCPConn), upstream.(*net.TCPConn))
	}
}

func (n *Network) join(client, server *net.TCPConn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := newLink(n, client, server)
	if n.closed {
		l.reset()
		return
	}
	n.links[l] = true
	n.tasks.Go(func() {
		l.run()
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.links, l)
	})
}

// LoseReplies implements [Faults].
func (n *Network) LoseReplies() { n.set(func() { n.deaf = true }) }

// Silence implements [Faults].
func (n *Network) Silence() { n.set(func() { n.silent = true }) }

// Delay implements [Faults].
func (n *Network) Delay(d time.Duration) { n.set(func() { n.delay = d }) }

// Cut ends all connections at once; new ones are accepted.
func (n *Network) Cut() {
	n.set(func() {
		for l := range n.links {
			l.reset()
		}
	})
}

// Refuse ends all connections at once, and new ones, until Heal.
func (n *Network) Refuse() {
	n.set(func() { n.refuses = true })
	n.Cut()
}

func (n *Network) refusing() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.refuses
}

// Servers returns the addresses of the servers that n leads to, and of n itself.
func (n *Network) Servers() (all []string) {
	n.set(func() {
		for server, listener := range n.routes {
			all = append(all, server, listener.Addr().String())
		}
	})
	return all
}

// Heal implements [Faults].
func (n *Network) Heal() {
	n.set(func() {
		n.silent, n.deaf, n.refuses, n.delay = false, false, false, 0
		for l := range n.links {
			if l.broken {
				l.reset()
			}
		}
	})
}

func (n *Network) set(change func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change()
}

// Hold implements [LateFaults].
func (n *Network) Hold() Held {
	h := &held{network: n, arrived: make(chan struct{})}
	n.set(func() { n.holding = h })
	return h
}

// held implements [Held].
type held struct {
	network *Network
	arrived chan struct{}
	links   []*link // that carry something
}

func (h *held) Arrived() <-chan struct{} { return h.arrived }

func (h *held) Overtake() {
	h.network.set(func() {
		h.network.holding = nil
		for _, l := range h.links {
			l.cutClient()
		}
	})
}

// settling is how long an engine has to act on a request that it was handed
// late, if it does not answer.
const settling = 100 * time.Millisecond

func (h *held) Deliver() {
	for _, l := range h.links {
		l.deliver()
	}
	time.Sleep(settling)
	for _, l := range h.links {
		l.reset()
	}
}

// add keeps request back. The network's mutex is held.
func (h *held) add(l *link, request []byte) {
	if len(l.held) == 0 {
		h.links = append(h.links, l)
	}
	l.held = append(l.held, request...)
	select {
	case <-h.arrived:
	default:
		close(h.arrived)
	}
}
