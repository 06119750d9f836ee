package zklock

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockgen/lockgen/runtime/driver"
)

const (
	// looks bounds how often those before us may leave while we look.
	looks = 16
	// fresh is how long it is taken for granted that the one before us, whom we
	// watch, is still there. A waiter asks once a second.
	fresh = 800 * time.Millisecond
)

// compete makes p's node if there is none, and takes the lock if it is first.
func (p *place) compete(ctx context.Context, a *driver.Acquisition, sent driver.Instant) (*lease, error) {
	p.early = nil
	if err := p.make(ctx, a.ID); err != nil {
		return nil, err
	}
	first, err := p.look(ctx)
	switch {
	case p.session.over() != nil:
		return nil, errGone
	case err != nil:
		return nil, err
	case !first:
		return nil, &driver.HeldError{}
	}
	if a.NoRenewal { // the first renewal would not come that sees to its length
		if err := p.session.cover(ctx, a.TTL); err != nil {
			return nil, err
		}
		sent = driver.Now()
	}
	return p.grant(a, sent)
}

// make sees to it that the node stands.
func (p *place) make(ctx context.Context, id string) error {
	b := p.session.backend
	for tries := 0; ; {
		b.mu.Lock()
		state, pending, doomed := p.state, p.pending, p.doomed
		b.mu.Unlock()
		var err error
		switch {
		case doomed:
			return errUndone
		case p.session.over() != nil:
			return errGone
		case pending != nil:
			select {
			case <-pending:
			case <-ctx.Done():
				err = fmt.Errorf("%w: %w", errNoAnswer, ctx.Err())
			}
		case state == standing:
			return nil
		case state == unknown:
			err = p.find(ctx)
		case tries == directoryTries:
			return zk.ErrNoNode
		default:
			tries++
			err = p.create(ctx, id)
			if isNoNode(err) {
				err = p.session.mkdir(ctx, p.dir)
			}
		}
		if err != nil && (ctx.Err() != nil || !unanswered(err)) {
			return err
		}
	}
}

// create asks for the node. What comes of it is noted also when ctx ends first.
func (p *place) create(ctx context.Context, id string) error {
	b := p.session.backend
	b.mu.Lock()
	if p.doomed {
		b.mu.Unlock()
		return errUndone
	}
	p.pending = make(chan struct{})
	b.mu.Unlock()
	sending := make(chan bool, 1)
	p.early = p.askBehind(ctx, sending)
	err := p.session.call(ctx, write, func(c *zk.Conn) error {
		sending <- true
		at, err := c.Create(p.dir+"/"+p.name, []byte(id), zk.FlagEphemeralSequential, b.acl)
		p.made(at, err)
		return err
	})
	if errors.Is(err, errNotSent) {
		sending <- false
		p.made("", err)
	}
	return err
}

// made notes the outcome of create.
func (p *place) made(at string, err error) {
	b := p.session.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case err == nil:
		p.stand(at)
	case !answered(err): // of what was not sent there is no node
		p.state = unknown
	}
	close(p.pending)
	p.pending = nil
}

// stand notes that the node is there. The backend's mutex is held.
func (p *place) stand(at string) {
	p.state, p.path = standing, at
	p.seq, _ = sequence(path.Base(at))
	next, left := p.session.backend.calm[p.dir]
	p.lonely = p.seq == 0 || left && next == p.seq
	delete(p.session.backend.calm, p.dir)
}

// find looks for the node after the reply to its creation was lost. That it is
// conclusive, clear says.
func (p *place) find(ctx context.Context) error {
	b := p.session.backend
	var children []string
	err := p.session.call(ctx, write, func(c *zk.Conn) error { return c.Delete(b.probe, -1) })
	if committed(err) {
		err = p.session.call(ctx, read, func(c *zk.Conn) (err error) {
			children, _, err = c.Children(p.dir)
			return err
		})
	}
	if err != nil && !isNoNode(err) {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	p.state = void
	for _, name := range children {
		if strings.HasPrefix(name, p.name) {
			p.stand(path.Join(p.dir, name))
			p.lonely = false
		}
	}
	return nil
}

// look finds out whether the node is first in the line, and if it is not, has
// the end of the one before it told to the subscription.
func (p *place) look(ctx context.Context) (first bool, err error) {
	for range looks {
		if p.inherits() {
			return true, nil
		}
		waiting, err := p.watching(ctx)
		if err == nil && waiting {
			return false, nil
		}
		var next, second string
		if err == nil {
			next, second, err = p.predecessors(ctx)
		}
		if err == nil && next == "" {
			return true, nil
		}
		if err == nil {
			err = p.watch(ctx, next, second)
			switch {
			case err == nil:
				return false, nil
			case isNoNode(err):
				err = nil // it has just left
			case answered(err) && committed(err): // it may not be read: we ask now and then
				return false, nil
			}
		}
		if err != nil && (!unanswered(err) || ctx.Err() != nil || p.session.over() != nil) {
			return false, err
		}
	}
	return false, nil // held, by one after the other
}

// predecessors returns the names of the two next before ours, "" for one that is
// not there; if none is, p.czxid is known. Where the last one before us was the
// only one before us, none has come since, so that it is enough to see that we are
// there. Where the one before us is the only one that is left, its name is known.
// Else all are listed: once when the place is made, and once when second goes.
func (p *place) predecessors(ctx context.Context) (next, second string, err error) {
	watched := p.on(onNext)
	switch {
	case p.rank == 1:
		p.rank = 0
		return "", "", p.identify(ctx)
	case p.rank == 2 && watched != nil:
		return path.Base(watched.path), "", nil
	}
	p.rank = 0
	beside := make(chan error, 1) // to save the time
	switch {
	case watched != nil: // we are the next, as a rule
		go func() { beside <- p.attend(ctx) }()
	case p.czxid == 0 && !p.lonely && p.early == nil: // we are the first, as a rule
		go func() { beside <- p.identify(ctx) }()
	default:
		beside <- nil
	}
	l := p.listed(ctx)
	err = l.err
	if other := <-beside; err == nil && errors.Is(other, errGone) {
		err = other
	}
	switch {
	case isNoNode(err):
		return "", "", errGone
	case err != nil:
		return "", "", err
	case !l.has(p.path):
		return "", "", errGone
	}
	if l.stat.DataLength > 0 {
		return "", "", foreign(p.dir, l.stat)
	}
	next, second, sooner, all := ahead(l.children, p.seq)
	if next == "" {
		return "", "", p.conclude(ctx, l.stat, all == 1 && len(l.children) == 1)
	}
	p.rank, p.lonely = sooner+1, false
	return next, second, nil
}

// conclude sees to p.czxid, for the first in the line. The directory says it if
// our creation was the last change of its children: if nobody was there before,
// as lonely says, and no other was created since.
func (p *place) conclude(ctx context.Context, dir *zk.Stat, alone bool) error {
	// The server shows twice the creations, less the children that there are.
	alone = alone && dir.Cversion+dir.NumChildren == 2*(p.seq+1)
	if p.czxid == 0 && p.lonely && alone {
		p.czxid = dir.Pzxid
	}
	p.lonely = alone
	if p.czxid != 0 {
		return nil
	}
	return p.identify(ctx)
}

// identify sees that the node is there, and which transaction has made it.
func (p *place) identify(ctx context.Context) error {
	there, stat, err := p.stat(ctx, p.path)
	switch {
	case err != nil:
		return err
	case !there:
		return errGone
	}
	p.czxid = stat.Czxid
	return nil
}

func (p *place) stat(ctx context.Context, at string) (there bool, stat *zk.Stat, err error) {
	type found struct {
		there bool
		stat  *zk.Stat
	}
	answer := make(chan found, 1)
	err = p.session.call(ctx, read, func(c *zk.Conn) error {
		there, stat, err := c.Exists(at)
		answer <- found{there, stat}
		return err
	})
	if err != nil {
		return false, nil, err
	}
	f := <-answer
	return f.there, f.stat, nil
}
