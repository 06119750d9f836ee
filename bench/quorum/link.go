package main

import (
	"context"
	"errors"
	"net"
	"sync"
)

var errCut = errors.New("this master can't be reached from here")

// link is the way from a client to one master. A test can cut it.
type link struct {
	mu    sync.Mutex
	isCut bool
	conns []net.Conn
}

func (l *link) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isCut {
		_ = c.Close()
		return nil, errCut
	}
	l.conns = append(l.conns, c)
	return c, nil
}

// cut closes all connections and refuses new ones until the link is restored.
func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isCut = true
	for _, c := range l.conns {
		_ = c.Close()
	}
	l.conns = nil
}

func (l *link) restore() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isCut = false
}
