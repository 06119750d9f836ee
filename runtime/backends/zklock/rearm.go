package zklock

import (
	"encoding/binary"
	"sync/atomic"
	"time"
)

// rearm keeps the answers to other requests back on a new connection until the
// library has sent the watches of the old one. It reads the last transaction that it
// has seen for that, without a lock, beside the goroutine that notes the transaction
// of every answer (Conn.sendSetWatches and Conn.recvLoop of v1.0.4): an answer that
// is quicker is a data race, and would make it ask only for what changed later.
type rearm struct {
	asked atomic.Bool   // something was sent whose answer names a transaction
	sent  chan struct{} // closed when the watches were sent
	none  atomic.Bool   // an answer was kept back in vain: there are no watches to send
}

// rearmLimit is how long the first answer is kept back where the library has no
// watches to send, other than we thought. The others are not: it will not ask for any
// on this connection then.
const rearmLimit = 50 * time.Millisecond

// The operations that matter here, as requests have them after their length and
// number (org.apache.zookeeper.ZooDefs.OpCode).
const (
	opPing       = 11
	opSetAuth    = 100
	opSetWatches = 101
)

func newRearm() *rearm { return &rearm{sent: make(chan struct{})} }

// wrote is told of each request before it is sent, by one goroutine.
func (r *rearm) wrote(request []byte) {
	if len(request) < 12 || closed(r.sent) {
		return
	}
	switch binary.BigEndian.Uint32(request[8:]) {
	case opSetWatches:
		close(r.sent)
	case opPing, opSetAuth: // the library waits for these before it sends the watches
	default:
		r.asked.Store(true)
	}
}

// await returns when an answer that has come may be read.
func (r *rearm) await() {
	if !r.asked.Load() || r.none.Load() || closed(r.sent) {
		return
	}
	timer := time.NewTimer(rearmLimit)
	defer timer.Stop()
	select {
	case <-r.sent:
	case <-timer.C:
		r.none.Store(true)
	}
}
