// Package delay is a TCP proxy that simulates a network. It delays each direction by
// half of a round trip and does not limit the rate.
package delay

import (
	"net"
	"runtime"
	"sync/atomic"
	"time"
)

// Proxy passes bytes between clients and one server. It does not interpret them.
type Proxy struct {
	listener net.Listener
	upstream string
	half     time.Duration
	queue    chan chunk
}

// link is a client's connection and the proxy's connection to the server for it.
type link struct {
	client, server *net.TCPConn
	ended          atomic.Int32 // number of directions that have ended
}

// chunk is the result of one read.
type chunk struct {
	due  time.Time
	link *link
	to   *net.TCPConn
	data []byte // nil at the end of the direction
}

const (
	// queueSize is larger than the number of chunks on their way at once. Every chunk has
	// the same delay, so one queue in the order of arrival serves all connections.
	queueSize = 1 << 16
	chunkSize = 1 << 16 // largest read in bytes
)

// New starts a proxy for the server at upstream, "host:port". The proxy runs until the process ends.
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

// read queues what one side sends, until that side closes the connection.
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

// deliver writes each chunk when it is due. Locks send little, so no write blocks,
// and one goroutine is enough for all connections.
func (p *Proxy) deliver() {
	runtime.LockOSThread() // pause blocks the thread
	for c := range p.queue {
		pause(time.Until(c.due))
		if c.data != nil {
			_, _ = c.to.Write(c.data) // the reader of a broken connection ends it
			continue
		}
		_ = c.to.CloseWrite()
		if c.link.ended.Add(1) == 2 {
			_ = c.link.client.Close()
			_ = c.link.server.Close()
		}
	}
}
