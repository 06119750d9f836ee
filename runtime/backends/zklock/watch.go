package zklock

import (
	"context"
	"errors"
	"sync"

	"github.com/go-zookeeper/zk"
)

// watches are the nodes whose end somebody of this session waits for. The
// library's channels are left alone: they would take a goroutine each. Its
// callback tells of every event by path, and one watch per path serves all.
type watches struct {
	mu   sync.Mutex
	path map[string]*watched
}

// watched is one node.
type watched struct {
	armed bool // the server will tell
	calls map[*watcher]bool
}

// watcher is one party's interest. Its function must not block.
type watcher struct {
	path string
	tell func(deleted bool)
}

// arm has w told when its node changes or goes, or the session ends. It
// returns zk.ErrNoNode if the node is not there; then nothing is left behind.
// getData does that in one request; exists would leave a watch for a node that
// never comes.
func (s *session) arm(ctx context.Context, w *watcher) error {
	if s.watches.add(w) {
		return nil
	}
	err := s.call(ctx, read, func(c *zk.Conn) error {
		_, _, _, err := c.GetW(w.path)
		if err == nil {
			s.watches.arm(w.path)
		}
		return err
	})
	if err != nil {
		s.watches.remove(w)
	}
	if isNoNode(err) {
		s.watches.tell(w.path, true) // whoever else believes that it is there
	}
	return err
}

// add notes w and returns whether the server will tell already.
func (ws *watches) add(w *watcher) (armed bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	n := ws.path[w.path]
	if n == nil {
		n = &watched{calls: map[*watcher]bool{}}
		ws.path[w.path] = n
	}
	n.calls[w] = true
	return n.armed
}

// arm notes that the server will tell, unless it has done so meanwhile.
func (ws *watches) arm(path string) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if n := ws.path[path]; n != nil {
		n.armed = true
	}
}

// remove forgets w. A node's watch at the server stays, there is no request to
// take it back, and so does its record here, for whoever comes next.
func (ws *watches) remove(w *watcher) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	n := ws.path[w.path]
	if n == nil {
		return
	}
	delete(n.calls, w)
	if !n.armed && len(n.calls) == 0 {
		delete(ws.path, w.path)
	}
}

// has reports whether w will be told.
func (ws *watches) has(w *watcher) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	n := ws.path[w.path]
	return n != nil && n.armed && n.calls[w]
}

// tell tells all who wait for path, once.
func (ws *watches) tell(path string, deleted bool) {
	ws.mu.Lock()
	n := ws.path[path]
	delete(ws.path, path)
	ws.mu.Unlock()
	if n == nil {
		return
	}
	for w := range n.calls {
		w.tell(deleted)
	}
}

// tellAll tells everybody: the session has ended.
func (ws *watches) tellAll() {
	ws.mu.Lock()
	all := ws.path
	ws.path = map[string]*watched{}
	ws.mu.Unlock()
	for _, n := range all {
		for w := range n.calls {
			w.tell(false)
		}
	}
}

func isNoNode(err error) bool { return errors.Is(err, zk.ErrNoNode) }
