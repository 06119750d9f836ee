package client

import (
	"maps"
	"slices"
)

// Watch is somebody's interest in a node: see Observe. It is for one time.
type Watch struct {
	Path string
	// Told is called when the node has changed or gone, or the connection has ended.
	// It must not block.
	Told func(deleted bool)
}

// Unwatch has w, which may be nil, not told any more. The watch at the server stays,
// there is no request to take it back.
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

// Watched returns the nodes that somebody has watched.
func (c *Client) Watched() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.watches))
}

// changed tells those who watch the node at path.
func (c *Client) changed(path string, deleted bool) {
	c.mu.Lock()
	all := c.watches[path]
	delete(c.watches, path)
	c.mu.Unlock()
	tell(all, deleted)
}

func tell(watches []*Watch, deleted bool) {
	for _, w := range watches {
		w.Told(deleted)
	}
}
