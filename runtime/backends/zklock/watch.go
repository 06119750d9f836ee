package zklock

import (
	"sync"

	"github.com/lockgen/lockgen/runtime/backends/zklock/internal/client"
)

// watches are the nodes of which somebody of a session wants to hear.
type watches struct {
	mu     sync.Mutex // guards byPath and the state of each watch in it
	byPath map[string]map[*watch]bool
}

// watch is one party's interest in a node. It is told once, that the node has
// changed or gone.
type watch struct {
	path string
	tell func(gone bool) // must not block

	set    uint64 // the connection over which the server was asked last, and answered; 0: none
	told   bool
	gone   bool   // the node was deleted
	goneBy uint64 // the connection that said so
}

// ask has w told when its node changes or goes. The channel gets the answer; it is
// zk.ErrNoNode if the node is not there, and w is not told then. What could not be
// sent is an answer too.
func (ws *watches) ask(s *session, w *watch) <-chan client.Answer {
	ws.mu.Lock()
	if ws.byPath[w.path] == nil {
		ws.byPath[w.path] = map[*watch]bool{}
	}
	ws.byPath[w.path][w] = true
	ws.mu.Unlock()
	answer := make(chan client.Answer, 1)
	answered := func(a client.Answer) {
		ws.mu.Lock()
		switch {
		case a.Err == nil && !w.told:
			w.set = a.Link
		case a.Err != nil:
			ws.removeLocked(w)
		}
		if isNoNode(a.Err) && !w.gone {
			w.told, w.gone, w.goneBy = true, true, a.Link
		}
		ws.mu.Unlock()
		answer <- a
	}
	if err := s.send(client.Watch(w.path), answered); err != nil {
		answered(client.Answer{Err: err})
	}
	return answer
}

// remove has w told of nothing any more. A watch at the server stays, there is no
// request to take it back.
func (ws *watches) remove(w *watch) {
	if w == nil {
		return
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w.told = true
	ws.removeLocked(w)
}

func (ws *watches) removeLocked(w *watch) {
	all := ws.byPath[w.path]
	delete(all, w)
	if len(all) == 0 {
		delete(ws.byPath, w.path)
	}
}

// setOn returns the connection over which the server was asked to tell w; 0 if w will not
// be told.
func (ws *watches) setOn(w *watch) uint64 {
	if w == nil {
		return 0
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if w.told {
		return 0
	}
	return w.set
}

// goneBy returns the connection that said that w's node is gone; 0: none has.
func (ws *watches) goneBy(w *watch) uint64 {
	if w == nil {
		return 0
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return w.goneBy
}

// event is the client's Config.Event.
func (ws *watches) event(e client.Event) {
	ws.mu.Lock()
	all := ws.byPath[e.Path]
	delete(ws.byPath, e.Path)
	for w := range all {
		w.told, w.gone = true, e.Deleted
		if e.Deleted {
			w.goneBy = e.Link
		}
	}
	ws.mu.Unlock()
	for w := range all {
		w.tell(e.Deleted)
	}
}
