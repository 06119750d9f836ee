package backendtest

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"
)

// Network implements [Faults] for a client that speaks TCP. It has one proxy before each
// server. The proxies pass on bytes and do not know the protocol. Give the
// client the proxies' addresses, or let it dial with [Network.DialContext]. Each client needs a
// Network of its own, because a fault disturbs all connections of the Network.
type Network struct {
	t     testing.TB
	tasks sync.WaitGroup

	mu           sync.Mutex              // guards the rest, and the fields of its links
	routes       map[string]net.Listener // by server
	links        map[*link]bool
	closed       bool
	silent       bool
	refuses      bool // new connections are cut
	losesReplies bool // answers are lost
	delay        time.Duration
	holding      *held // where requests are held back, or nil
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

// Addr returns the address, "127.0.0.1:port", of n's proxy before server,
// "host:port". It returns the same address for the same server. With a nil Network it
// returns server itself.
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

// DialContext connects to server through n. It has the signature that clients accept
// as a dialer.
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
func (n *Network) LoseReplies() { n.set(func() { n.losesReplies = true }) }

// Silence implements [Faults].
func (n *Network) Silence() { n.set(func() { n.silent = true }) }

// Delay implements [Faults].
func (n *Network) Delay(d time.Duration) { n.set(func() { n.delay = d }) }

// Cut ends all connections at once. New connections are accepted.
func (n *Network) Cut() {
	n.set(func() {
		for l := range n.links {
			l.reset()
		}
	})
}

// Refuse ends all connections at once, and refuses new ones until Heal.
func (n *Network) Refuse() {
	n.set(func() { n.refuses = true })
	n.Cut()
}

func (n *Network) refusing() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.refuses
}

// Servers returns the addresses of the servers behind n, and of n's proxies.
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
		n.silent, n.losesReplies, n.refuses, n.delay = false, false, false, 0
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
	links   []*link // those with requests that are held back
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

// settling is how long Deliver waits for the engine to act on requests that arrive late.
// Deliver waits because the answers are lost.
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

// add holds request back. The caller holds the network's mutex.
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
