package faultproxy

import (
	"errors"
	"net"
	"syscall"
	"time"
)

// listenLimit is the longest time that a process takes to begin.
const listenLimit = 2 * time.Second

// listen listens on a port whose previous listener was closed a moment ago. A process that is being started
// has a copy of each of our sockets until its own program runs, even of sockets that we have closed
// meanwhile. Until then the kernel says that the port is in use.
func listen(addr string) (l net.Listener, err error) {
	for begin := time.Now(); time.Since(begin) < listenLimit; time.Sleep(time.Millisecond) {
		if l, err = net.Listen("tcp", addr); !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
	}
	return l, err
}
