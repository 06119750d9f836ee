package client

import (
	"errors"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/go-zookeeper/zk"
)

// Watch waits for a change of a node: see Observe. It fires once.
type Watch struct {
	Path string
	// Told is called when the node has changed or gone, or the connection has ended.
	// It must not block.
	Told func()

	state atomic.Int32
}

// States of a Watch that was asked for.
const (
	Standing = 1 + iota // it has not fired
	Changed             // the node has changed, or the connection has ended
	Deleted             // the node was deleted, while the connection that watched it stood
)

// Is reports whether w, which may be nil, has this state.
func (w *Watch) Is(state int32) bool { return w != nil && w.state.Load() == state }

// Unwatch keeps w, which may be nil, from firing. The watch at the server stays: no request
// takes it back.
func (c *Client) Unwatch(w *Watch) {
	if w == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	all := slices.DeleteFunc(c.watches[w.Path], func(other *Watch) bool { return other == w })
	if c.watches[w.Path] = all; len(all) == 0 {
		delete(c.watches, w.Path)
	}
}

// watchFailed notes that the server has refused to set w, because of err.
func (c *Client) watchFailed(w *Watch, err error) {
	c.Unwatch(w)
	if w.state.Store(Changed); errors.Is(err, zk.ErrNoNode) {
		w.state.Store(Deleted)
	}
}

// Watched returns the paths of the nodes that are watched.
func (c *Client) Watched() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.watches))
}

// changed fires the watches of the node at path.
func (c *Client) changed(path string, state int32) {
	c.mu.Lock()
	all := c.watches[path]
	delete(c.watches, path)
	c.mu.Unlock()
	tell(all, state)
}

func tell(watches []*Watch, state int32) {
	for _, w := range watches {
		w.state.Store(state)
		w.Told()
	}
}
