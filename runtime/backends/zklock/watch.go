package zklock

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/go-zookeeper/zk"
)

// watches are the nodes whose end somebody of this session waits for. The
// library's channels are left alone: they would take a goroutine each. Its
// callback tells of every event by path, and one watch per path serves all.
type watches struct {
	mu    sync.Mutex
	path  map[string]*watched
	asked map[string]bool // by path: the library has a watch, or is about to
}

// watched is one node.
type watched struct {
	via   <-chan struct{} // the connection over which the server was asked to tell, as session.isUp has it, or nil
	calls map[*watcher]bool
}

// watcher is one party's interest. Its function must not block.
type watcher struct {
	path string
	tell func(deleted bool)
	gone atomic.Bool // the node is there no more
}

// hasGone reports whether there is a w, and its node is there no more.
func (w *watcher) hasGone() bool { return w != nil && w.gone.Load() }

// arm has w told when its node changes or goes, or the session ends. It
// returns zk.ErrNoNode if the node is not there; then nothing is left behind.
// getData does that in one request; exists would leave a watch for a node that
// never comes. If it took the request, the answer says which transaction has made
// the node; else czxid is 0.
func (s *session) arm(ctx context.Context, w *watcher) (czxid int64, err error) {
	n, armed := s.watches.add(w)
	if armed {
		return 0, nil
	}
	up := s.isUp()
	made := make(chan int64, 1)
	err = s.call(ctx, read, func(c *zk.Conn) error {
		s.watches.ask(w.path, true)
		_, stat, _, err := c.GetW(w.path)
		if err == nil {
			s.watches.arm(w.path, n, up)
			made <- stat.Czxid
		}
		if err != nil {
			s.watches.ask(w.path, false)
		}
		return err
	})
	if err != nil {
		s.watches.remove(w)
	} else {
		czxid = <-made
	}
	if isNoNode(err) {
		w.gone.Store(true)
		s.watches.tell(w.path, true) // whoever else believes that it is there
	}
	return czxid, err
}

// add notes w with its node, and returns whether the server will tell already.
func (ws *watches) add(w *watcher) (n *watched, armed bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	n = ws.path[w.path]
	if n == nil {
		n = &watched{calls: map[*watcher]bool{}}
		ws.path[w.path] = n
	}
	n.calls[w] = true
	return n, n.via != nil
}

// arm notes that the server will tell of n, which add has returned, unless it has
// done so meanwhile. It was asked over up, or a later connection.
func (ws *watches) arm(path string, n *watched, up <-chan struct{}) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.path[path] == n {
		n.via = up
	}
}

// ask notes whether the library is asked to watch path.
func (ws *watches) ask(path string, asked bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if asked {
		ws.asked[path] = true
	} else {
		delete(ws.asked, path)
	}
}

// any reports whether the library may have watches.
func (ws *watches) any() bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return len(ws.asked) > 0
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
	if n.via == nil && len(n.calls) == 0 {
		delete(ws.path, w.path)
	}
}

// has reports whether w will be told.
func (ws *watches) has(w *watcher) bool { return ws.via(w) != nil }

// via returns the connection over which the server was asked to tell w, or nil if
// w will not be told, or is nil.
func (ws *watches) via(w *watcher) <-chan struct{} {
	if w == nil {
		return nil
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if n := ws.path[w.path]; n != nil && n.calls[w] {
		return n.via
	}
	return nil
}

// tell tells all who wait for path, once.
func (ws *watches) tell(path string, deleted bool) {
	ws.mu.Lock()
	n := ws.path[path]
	delete(ws.path, path)
	delete(ws.asked, path)
	if n == nil {
		ws.mu.Unlock()
		return
	}
	for w := range n.calls {
		w.gone.Store(deleted)
	}
	ws.mu.Unlock()
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
