package zklock

import (
	"context"
	"path"
	"slices"

	"github.com/go-zookeeper/zk"
)

// listing is who is in a directory, as one request found them.
type listing struct {
	children []string
	stat     *zk.Stat
	err      error
}

// has reports whether the node at this path is among them.
func (l listing) has(at string) bool {
	return l.err == nil && slices.Contains(l.children, path.Base(at))
}

// list asks for p's directory once after says true. It does not wait.
func (p *place) list(ctx context.Context, after <-chan bool) <-chan listing {
	answer := make(chan listing, 1)
	s := p.session
	if !s.begin() {
		answer <- listing{err: errGone}
		return answer
	}
	go func() {
		defer s.work.Done()
		select {
		case sent := <-after:
			if !sent {
				answer <- listing{err: errNotSent}
				return
			}
		case <-ctx.Done(): // call says so
		}
		var l listing
		got := make(chan listing, 1)
		if l.err = s.call(ctx, read, func(c *zk.Conn) error {
			children, stat, err := c.Children(p.dir)
			got <- listing{children: children, stat: stat}
			return err
		}); l.err == nil {
			l = <-got
		}
		answer <- l
	}()
	return answer
}

// listed returns who is in p's directory, p among them. A node's creation has the
// listing sent right behind it, which saves a round trip: a server deals with the
// requests of a session in their order. Where the two did not come in that order,
// or the directory was not there yet, it is asked once more.
func (p *place) listed(ctx context.Context) listing {
	early := p.early
	p.early = nil
	if early != nil {
		if l := <-early; l.has(p.path) {
			return l
		}
	}
	at := make(chan bool, 1)
	at <- true
	return <-p.list(ctx, at)
}
