package main

import (
	"fmt"
	"net"
	"net/http"
	"strconv"
)

// pagePath is the path of the page of a worker's locks.
const pagePath = "/debug/locks/"

// pageOf returns the address at which a worker serves the page of its locks, or "" if it serves
// none.
func (p plan) pageOf(worker int) (string, error) {
	if p.page == "" {
		return "", nil
	}
	host, text, err := net.SplitHostPort(p.page)
	if err != nil {
		return "", fmt.Errorf("-http %s: want HOST:PORT", p.page)
	}
	port, err := strconv.Atoi(text)
	if err != nil || port < 0 || port > 65535-p.processes {
		return "", fmt.Errorf("-http %s: the port is a number, with room for those of %d workers after it", p.page, p.processes)
	}
	if port > 0 {
		port += worker - 1
	}
	return net.JoinHostPort(host, strconv.Itoa(port)), nil
}

// tellPages prints the addresses of the workers' pages.
func (s *sale) tellPages(show *progress) {
	for _, p := range s.workers {
		p.mu.Lock()
		page := p.page
		p.mu.Unlock()
		if page != "" {
			show.event("the locks of %v: %s", p, page)
		}
	}
}

// openPage serves the page of the worker's locks until it is closed, if one was asked for.
func (w *worker) openPage() (address string, closePage func(), err error) {
	if w.monitor == nil {
		return "", func() {}, nil
	}
	listener, err := net.Listen("tcp", w.Page)
	if err != nil {
		return "", nil, fmt.Errorf("serve the page of the locks (-http): %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle(pagePath, w.monitor)
	server := &http.Server{Handler: mux}
	go server.Serve(listener) //nolint:errcheck // it ends with the worker
	return "http://" + listener.Addr().String() + pagePath, func() { server.Close() }, nil
}
