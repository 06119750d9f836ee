package redislock

import (
	"bytes"
	"net"
	"sync/atomic"
)

// greeting is a connection while go-redis greets the server on it. Of that only
// what the user asked for goes to the server: credentials, database, name. HELLO,
// which asks for what a server speaks anyway, is refused here as servers before 6.0
// do, and the PING that made go-redis begin is answered here. A call must not wait
// for that: before a server that has stopped it would never reach the socket, where
// an undo has to stand behind the acquire that it undoes.
type greeting struct {
	net.Conn
	over    atomic.Bool
	refused bool // the reader is owed the refusal of HELLO
}

var hello = []byte("$5\r\nhello\r\n")

// Write implements [net.Conn].
func (g *greeting) Write(p []byte) (int, error) {
	if g.over.Load() {
		return len(p), nil
	}
	_, name, _ := bytes.Cut(p, []byte("\r\n"))
	if bytes.HasPrefix(name, hello) {
		g.refused = true
		return len(p), nil
	}
	return g.Conn.Write(p)
}

// Read implements [net.Conn].
func (g *greeting) Read(p []byte) (int, error) {
	switch {
	case g.over.Load():
		return copy(p, "+PONG\r\n"), nil
	case g.refused:
		g.refused = false
		return copy(p, "-ERR unknown command 'HELLO'\r\n"), nil
	}
	return g.Conn.Read(p)
}

// end makes the greeting be over, unless the connection leads nowhere: see dead.
func (g *greeting) end() {
	_, nowhere := g.Conn.(dead)
	g.over.Store(!nowhere)
}
