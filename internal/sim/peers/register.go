package peers

import (
	"sync"
	"time"
)

// register is the resource that the locks guard. A read or a write of a holder that has
// a fencing token is refused if the token is below one that it has seen; of a holder
// that has none it takes all, as a plain database does.
type register struct {
	episode *episode
	latency time.Duration

	mu   sync.Mutex // guards the rest
	keys map[string]*value
}

// value is what the register knows of one key.
type value struct {
	token uint64 // the highest that was seen
	last  *hold  // of those whose read or write was taken, the one that was acquired last
}

// access reads or writes in the name of h, and reports whether that was taken. It takes
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
