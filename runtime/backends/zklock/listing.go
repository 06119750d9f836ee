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

// ask asks who is in p's directory.
func (p *place) ask(ctx context.Context) listing {
	got := make(chan listing, 1)
	err := p.session.call(ctx, read, func(c *zk.Conn) error {
		children, stat, err := c.Children(p.dir)
		got <- listing{children: children, stat: stat}
		return err
	})
	if err != nil {
		return listing{err: err}
	}
	return <-got
}

// askBehind asks as soon as sent says that another request is on its way, and not
// if it says that none will be. It does not wait.
func (p *place) askBehind(ctx context.Context, sent <-chan bool) <-chan listing {
	answer := make(chan listing, 1)
	s := p.session
	if !s.begin() {
		answer <- listing{err: errGone}
		return answer
	}
	go func() {
		defer s.work.Done()
		l := listing{err: errNotSent}
		select {
		case on := <-sent:
			if on {
				l = p.ask(ctx)
			}
		case <-ctx.Done():
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
	return p.ask(ctx)
}
