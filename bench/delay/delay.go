// Package delay is a TCP proxy that stands for a network: each direction takes
// half of a round trip longer, and carries as much as it would without.
package delay

import (
	"net"
	"runtime"
	"sync/atomic"
	"time"
)

// Proxy passes bytes between clients and one server. It does not look at them.
type Proxy struct {
	listener net.Listener
	upstream string
	half     time.Duration
	queue    chan chunk
}

// link is a client's connection, and the one to the server that stands for it.
type link struct {
	client, server *net.TCPConn
	ended          atomic.Int32 // directions
}

// chunk is what one read returned.
type chunk struct {
	due  time.Time
	link *link
	to   *net.TCPConn
	data []byte // nil at the end of the direction
}

const (
	// queueSize is more chunks than are under way at once. Every chunk is delayed
	// alike, so one queue in the order of arrival serves all connections.
	queueSize = 1 << 16
	chunkSize = 1 << 16 // bytes that one read takes at most
)

// New starts a proxy before upstream, "host:port". It lasts as long as the process.
func New(upstream string, rtt time.Duration) (*Proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{listener: listener, upstream: upstream, half: rtt / 2, queue: make(chan chunk, queueSize)}
	go p.deliver()
	go p.accept()
	return p, nil
}

// Addr returns the address for clients to dial.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		go p.join(client.(*net.TCPConn))
	}
}

func (p *Proxy) join(client *net.TCPConn) {
	server, err := net.Dial("tcp", p.upstream)
	if err != nil {
		_ = client.Close()
		return
	}
	l := &link{client: client, server: server.(*net.TCPConn)}
	go p.read(l, l.server, l.client)
	p.read(l, l.client, l.server)
}

// read queues what one side sends, until it ends.
func (p *Proxy) read(l *link, from, to *net.TCPConn) {
	buffer := make([]byte, chunkSize)
	for {
		n, err := from.Read(buffer)
		due := time.Now().Add(p.half)
		if n > 0 {
			p.queue <- chunk{due, l, to, append([]byte(nil), buffer[:n]...)}
		}
		if err != nil {
			p.queue <- chunk{due, l, to, nil}
			return
		}
	}
}

// deliver writes each chunk when it is due. Locks send little, so that no write
// has to wait for its reader, and one goroutine is enough for all connections.
func (p *Proxy) deliver() {
	runtime.LockOSThread() // pause blocks the thread
	for c := range p.queue {
		pause(time.Until(c.due))
		if c.data != nil {
			_, _ = c.to.Write(c.data) // a broken connection ends by its reader
			continue
		}
		_ = c.to.CloseWrite()
		if c.link.ended.Add(1) == 2 {
			_ = c.link.client.Close()
			_ = c.link.server.Close()
		}
	}
}
