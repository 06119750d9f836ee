package peers

import (
	"sync"
	"time"
)

// register is the resource that the locks guard. It refuses a read or write of a holder with
// a fencing token if it has seen a higher token. From a holder
// without a token it accepts everything, as a plain database does.
type register struct {
	episode *episode
	latency time.Duration

	mu   sync.Mutex // guards the rest
	keys map[string]*value
}

// value is the state of one key.
type value struct {
	token uint64 // the highest token so far
	last  *hold  // of the holds with an accepted read or write, the one that was acquired last
}

// access reads or writes for h, and reports whether that was accepted. It takes
// as long as a message.
func (r *register) access(h *hold, write bool) bool {
	time.Sleep(r.latency)
	if h.process.isKilled() {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	v := r.keys[h.key]
	if v == nil {
		v = &value{}
		r.keys[h.key] = v
	}
	if token, ok := h.held.Token(); ok {
		if token < v.token {
			return false
		}
		v.token = token
	}
	if v.last != nil && v.last.got.After(h.got) {
		if write {
			r.episode.staleWrite(h, v.last)
		}
		return true
	}
	v.last = h
	return true
}
