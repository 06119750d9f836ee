package backendtest

import (
	"net"
	"sync"
	"time"
)

// link is one connection of a client, with the proxy's connection to the server.
type link struct {
	network        *Network
	client, server *net.TCPConn
	ended          chan struct{}
	end            sync.Once

	// Guarded by the network's mutex.
	broken bool   // bytes were lost, so that the two sides no longer agree
	held   []byte // requests that were held back
}

// chunk is the result of one read.
type chunk struct {
	bytes []byte
	due   time.Time // when it must reach the client
}

func newLink(n *Network, client, server *net.TCPConn) *link {
	return &link{network: n, client: client, server: server, ended: make(chan struct{})}
}

// reset ends the link; both sides see a TCP reset.
func (l *link) reset() {
	_ = l.server.SetLinger(0)
	_ = l.server.Close()
	l.cutClient()
	l.end.Do(func() { close(l.ended) })
}

// cutClient ends the client's side. Requests that are held back can still be delivered.
func (l *link) cutClient() {
	_ = l.client.SetLinger(0)
	_ = l.client.Close()
}

func (l *link) run() {
	var tasks sync.WaitGroup
	replies := make(chan chunk, 1<<10)
	tasks.Go(func() {
		l.passRequests()
		if !l.holds() {
			_ = l.server.CloseWrite()
		}
	})
	tasks.Go(func() {
		defer close(replies)
		l.readReplies(replies)
	})
	tasks.Go(func() {
		for c := range replies {
			l.reply(c)
		}
		_ = l.client.Close()
	})
	tasks.Wait()
	_ = l.server.Close()
}

func (l *link) holds() bool {
	l.network.mu.Lock()
	defer l.network.mu.Unlock()
	return len(l.held) > 0
}

func (l *link) passRequests() {
	buffer := make([]byte, 64<<10)
	for {
		n, err := l.client.Read(buffer)
		if n > 0 && l.admit(buffer[:n]) {
			if _, err := l.server.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// admit reports whether to pass request to the server now.
func (l *link) admit(request []byte) bool {
	n := l.network
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.silent:
		l.broken = true
		return false
	case len(l.held) > 0 || n.holding != nil:
		if n.holding != nil {
			n.holding.add(l, request)
		}
		return false
	}
	return true
}

func (l *link) deliver() {
	l.network.mu.Lock()
	request := l.held
	l.network.mu.Unlock()
	_, _ = l.server.Write(request)
}

func (l *link) readReplies(out chan<- chunk) {
	for {
		buffer := make([]byte, 16<<10)
		n, err := l.server.Read(buffer)
		if n > 0 {
			l.network.mu.Lock()
			due := time.Now().Add(l.network.delay)
			l.network.mu.Unlock()
			out <- chunk{buffer[:n], due}
		}
		if err != nil {
			return
		}
	}
}

// reply passes c to the client when it is due, unless answers are lost at that time.
func (l *link) reply(c chunk) {
	if wait := time.Until(c.due); wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-l.ended:
			return
		}
	}
	l.network.mu.Lock()
	lost := l.network.silent || l.network.losesReplies
	l.broken = l.broken || lost
	l.network.mu.Unlock()
	if !lost {
		_, _ = l.client.Write(c.bytes)
	}
}
