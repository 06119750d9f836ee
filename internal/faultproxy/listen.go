package faultproxy

import (
	"errors"
	"net"
	"syscall"
	"time"
)

// listenLimit is how long a process at most takes to begin.
const listenLimit = 2 * time.Second

// listen listens on a port that was listened on a moment ago. A process that is being started
// has a copy of each socket of ours until its own program runs, also of one that we have closed
// meanwhile: until then the kernel takes the port for one that is in use.
func listen(addr string) (l net.Listener, err error) {
	for begin := time.Now(); time.Since(begin) < listenLimit; time.Sleep(time.Millisecond) {
		if l, err = net.Listen("tcp", addr); !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
	}
	return l, err
}
