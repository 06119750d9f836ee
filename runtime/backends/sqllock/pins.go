package sqllock

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"sync/atomic"
)

// pins are the connections of a Backend's locks.
type pins struct {
	backend  *Backend
	raw      rawLock
	mu       sync.Mutex
	all      map[*pin]struct{}
	owned    map[string]*pin // by acquisition
	checking chan struct{}   // has room for one: whoever put it in checks
	checked  atomic.Bool     // that sessions are the server's own
}

func (ps *pins) init(b *Backend) {
	ps.backend, ps.checking = b, make(chan struct{}, 1)
	ps.all, ps.owned = map[*pin]struct{}{}, map[string]*pin{}
	switch b.strategy {
	case Advisory:
		ps.raw = newAdvisory(b)
	case RowLock:
		ps.raw = newRowLock(b)
	}
}

func (ps *pins) forget(p *pin) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	delete(ps.all, p)
	if ps.owned[p.owner] == p {
		delete(ps.owned, p.owner)
	}
}

// own notes that acquisition id holds its lock by p.
func (ps *pins) own(p *pin, id string) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p.owner = id
	ps.owned[id] = p
}

// of returns the pin by which acquisition id holds its lock, or nil.
func (ps *pins) of(id string) *pin {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return ps.owned[id]
}

// close discards all connections that are left.
func (ps *pins) close() {
	ps.mu.Lock()
	left := make([]*pin, 0, len(ps.all))
	for p := range ps.all {
		left = append(left, p)
	}
	ps.mu.Unlock()
	for _, p := range left {
		p.discard()
	}
}

// lend takes a connection out of the pool.
func (ps *pins) lend(ctx context.Context) (*pin, error) {
	b := ps.backend
	type outcome struct {
		conn *sql.Conn
		err  error
	}
	got := make(chan outcome)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if !b.spawn(func() {
		conn, err := b.db.Conn(ctx)
		select {
		case got <- outcome{conn, err}:
		case <-ctx.Done():
			if err == nil {
				_ = conn.Close()
			}
		}
	}) {
		return nil, errClosed
	}
	select {
	case o := <-got:
		if o.err != nil {
			catchUp(ctx)
			return nil, unreached(o.err)
		}
		p := &pin{pins: ps, open: o.conn, turn: make(chan struct{}, 1)}
		ps.mu.Lock()
		defer ps.mu.Unlock()
		ps.all[p] = struct{}{}
		return p, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: no connection to the database: %w", errNotSent, ctx.Err())
	}
}
