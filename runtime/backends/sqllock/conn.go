package sqllock

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"fmt"
	"sync"
)

// dedicated is a connection of the pool for one purpose: the renewals, or one lock
// of strategy Advisory or RowLock. Its first statement takes it out of the pool. It
// lends the connection to one statement at a time.
type dedicated struct {
	backend *Backend
	again   bool          // it takes another connection when this one is lost
	lost    func()        // unless nil, called without mu when the connection is gone
	inUse   chan struct{} // a semaphore of one statement

	mu    sync.Mutex // guards the rest
	taken bool       // out of the pool
	open  *sql.Conn  // nil if there is none
}

func (b *Backend) newDedicated(again bool, lost func()) *dedicated {
	return &dedicated{backend: b, again: again, lost: lost, inUse: make(chan struct{}, 1)}
}

func (d *dedicated) another() bool { return d.again }

func (d *dedicated) conn(ctx context.Context) (*sql.Conn, error) {
	select {
	case d.inUse <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	d.mu.Lock()
	conn, dials := d.open, d.again || !d.taken
	d.mu.Unlock()
	if conn != nil {
		return conn, nil
	}
	err := sql.ErrConnDone
	if dials {
		conn, err = d.dial(ctx)
	}
	if err != nil {
		<-d.inUse
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.taken && !d.again { // it was discarded meanwhile
		_ = conn.Close()
		<-d.inUse
		return nil, sql.ErrConnDone
	}
	d.open, d.taken = conn, true
	return conn, nil
}

// dial takes a connection out of the pool. Others wait for one that many statements are to have, so
// a dial for it that takes too long is given up: it counts as a connection that was lost.
func (d *dedicated) dial(ctx context.Context) (*sql.Conn, error) {
	if !d.again {
		return d.backend.db.Conn(ctx)
	}
	limited, cancel := context.WithTimeout(ctx, attemptLimit)
	defer cancel()
	conn, err := d.backend.db.Conn(limited)
	if err != nil && ctx.Err() == nil && limited.Err() != nil {
		err = fmt.Errorf("%w: %w", sql.ErrConnDone, err)
	}
	return conn, err
}

func (d *dedicated) done(_ *sql.Conn, broken bool) {
	if broken {
		if conn := d.take(); conn != nil {
			discard(conn)
		}
	}
	<-d.inUse
}

// gone reports whether the connection was lost or given back.
func (d *dedicated) gone() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.taken && d.open == nil
}

// take removes the connection from d.
func (d *dedicated) take() *sql.Conn {
	d.mu.Lock()
	conn := d.open
	d.open, d.taken = nil, true
	d.mu.Unlock()
	if d.lost != nil {
		d.lost()
	}
	return conn
}

// discard closes the connection, and with it frees what its session holds. A
// statement that is under way is waited for, beside: a *sql.Conn that is closed just
// as a statement begins on it panics.
func (d *dedicated) discard() {
	conn := d.take()
	if conn == nil {
		return
	}
	end := func(context.Context) {
		d.inUse <- struct{}{}
		defer func() { <-d.inUse }()
		discard(conn)
	}
	if !d.backend.life.Go(end) {
		end(nil)
	}
}

// giveBack returns the connection, whose session holds nothing, to the pool; or
// discards it if a statement is under way on it still, for which Close would wait.
func (d *dedicated) giveBack() {
	select {
	case d.inUse <- struct{}{}:
		defer func() { <-d.inUse }()
	default:
		d.discard()
		return
	}
	if conn := d.take(); conn != nil {
		_ = conn.Close() // no I/O: the pool looks at it when it lends it again
	}
}

// discard closes the connection itself, so that the server frees what is bound
// to its session: a pool would keep it.
func discard(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return sqldriver.ErrBadConn })
	_ = conn.Close()
}
