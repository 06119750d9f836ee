package faultproxy

import (
	"bufio"
	"context"
	"net"
	"sync"
	"time"
)

// link is one client's connection and the proxy's connection to the server for
// it. Each direction has a reader and a writer with a queue between them, so
// that a delay adds to the latency and does not limit the throughput.
//
//	client -> readRequests -> requests -> write -> server
//	client <- write <- replies <- readReplies <- server
type link struct {
	proxy          *Proxy
	client, server *net.TCPConn

	cut        context.Context // done when the link must end at once
	cutNow     context.CancelFunc
	serverGone context.Context // done when no request can be answered any more
	serverDone context.CancelFunc

	mu      sync.Mutex
	pending []*frame // sent to the server, not yet answered, oldest first
}

// frame is one request or reply on its way.
type frame struct {
	bytes []byte
	due   time.Time

	// Only of requests:
	args    []string
	swallow *swallow // set if its reply is to be lost
	held    *Held    // set if it waits for Deliver
}

// queueSize is larger than the number of frames that a test has on their way in one direction.
const queueSize = 1 << 12

func newLink(p *Proxy, client, server *net.TCPConn) *link {
	l := &link{proxy: p, client: client, server: server}
	l.cut, l.cutNow = context.WithCancel(context.Background())
	l.serverGone, l.serverDone = context.WithCancel(l.cut)
	return l
}

// reset ends the link at once; both sides see a TCP reset.
func (l *link) reset() {
	for _, conn := range []*net.TCPConn{l.client, l.server} {
		_ = conn.SetLinger(0)
		_ = conn.Close()
	}
	l.cutNow()
}

// run moves frames until both directions have ended. Data that a client sent before it
// closed still reaches the server, late or not, as over TCP. Held requests that have
// no answer by then fail.
func (l *link) run() {
	defer l.cutNow()
	requests := make(chan *frame, queueSize)
	replies := make(chan *frame, queueSize)
	var tasks sync.WaitGroup
	tasks.Go(func() { l.readRequests(requests) })
	tasks.Go(func() {
		l.writeRequests(requests)
		_ = l.server.CloseWrite()
	})
	tasks.Go(func() {
		l.readReplies(replies)
		l.serverDone()
	})
	tasks.Go(func() {
		l.writeReplies(replies)
		_ = l.client.Close()
	})
	tasks.Wait()
	_ = l.server.Close()
	for _, f := range l.pending {
		if f.held != nil { // it was delivered, and the server ended without an answer
			close(f.held.failed)
		}
	}
}

func (l *link) readRequests(out chan<- *frame) {
	defer close(out)
	r := bufio.NewReader(l.client)
	for {
		bytes, err := l.proxy.format.read(r)
		if err != nil {
			return
		}
		out <- l.proxy.admit(bytes)
	}
}

// writeRequests sends requests when they are due. It ends when its queue is closed, not earlier,
// so that the reader never blocks on the queue. It ignores failed writes to a dead server.
func (l *link) writeRequests(in <-chan *frame) {
	for f := range in {
		if f.held != nil && !f.held.wait(l.serverGone) {
			continue
		}
		sleepUntil(f.due, l.serverGone)
		if l.proxy.dropped(Requests) {
			continue
		}
		l.expectReply(f)
		_, _ = l.server.Write(f.bytes)
	}
}

// readReplies passes on the replies before the first one that is to be lost. It also reads the
// later ones, because they show that their requests have run.
func (l *link) readReplies(out chan<- *frame) {
	endOfReplies := sync.OnceFunc(func() { close(out) })
	defer endOfReplies()
	r := bufio.NewReader(l.server)
	for losing := false; ; {
		bytes, err := l.proxy.format.read(r)
		if err != nil {
			return
		}
		request := l.answered(bytes)
		if request.held != nil {
			close(request.held.answered)
		}
		if request.swallow != nil {
			losing = true
			endOfReplies()
			l.proxy.lost(request.swallow)
		}
		if !losing {
			out <- &frame{bytes: bytes, due: l.proxy.due(Replies)}
		}
	}
}

// writeReplies passes on replies when they are due, even after the server has ended.
func (l *link) writeReplies(in <-chan *frame) {
	for f := range in {
		sleepUntil(f.due, l.cut)
		if !l.proxy.dropped(Replies) {
			_, _ = l.client.Write(f.bytes)
		}
	}
}

func sleepUntil(due time.Time, or context.Context) {
	wait := time.Until(due)
	if wait <= 0 {
		return
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-or.Done():
	}
}

// expectReply records that the server will answer f. The server answers a subscription by
// zero, one or many pushes. (In RESP2 pushes look like replies, but there a subscribed
// connection has no other requests.)
func (l *link) expectReply(f *frame) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(f.args) == 0 || l.proxy.format.silent(f.args[0]) {
		return
	}
	l.pending = append(l.pending, f)
}

// answered returns the request that a reply belongs to, or an empty one if there is none.
func (l *link) answered(reply []byte) *frame {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.proxy.format.push(reply) || len(l.pending) == 0 {
		return &frame{}
	}
	request := l.pending[0]
	l.pending = l.pending[1:]
	return request
}
