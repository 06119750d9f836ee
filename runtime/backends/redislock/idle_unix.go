//go:build unix

package redislock

import (
	"net"
	"syscall"
)

// isGone reports whether the server has closed conn while it lay idle, which
// would cost the next call its answer. It does not wait. Bytes that nobody
// asked for are as bad.
func isGone(conn net.Conn) bool {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return false // TLS: the next call finds out
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return true
	}
	gone := false
	err = raw.Read(func(fd uintptr) bool {
		var b [1]byte
		_, err := syscall.Read(int(fd), b[:])
		gone = err != syscall.EAGAIN && err != syscall.EWOULDBLOCK && err != syscall.EINTR
		return true
	})
	return gone || err != nil
}
