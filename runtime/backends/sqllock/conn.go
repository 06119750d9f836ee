package sqllock

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"fmt"
	"sync"
)

// dedicated is a connection that was taken out of the pool for one purpose: the
// renewals, or one lock of strategy Advisory or RowLock. It lends the connection to
// one statement at a time.
type dedicated struct {
	backend *Backend
	dials   bool          // it takes a connection when it has none
	lost    func()        // unless nil, called without mu when the connection is gone
	inUse   chan struct{} // a semaphore of one statement

	mu   sync.Mutex // guards open
	open *sql.Conn  // nil if there is none
}

func (b *Backend) newDedicated(open *sql.Conn) *dedicated {
	return &dedicated{backend: b, inUse: make(chan struct{}, 1), open: open, dials: open == nil}
}

func (d *dedicated) another() bool { return d.dials }

func (d *dedicated) conn(ctx context.Context) (*sql.Conn, error) {
	select {
	case d.inUse <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	conn, err := d.current(), sql.ErrConnDone
	if conn == nil && d.dials {
		if conn, err = d.backend.db.Conn(ctx); err == nil {
			d.mu.Lock()
			d.open = conn
			d.mu.Unlock()
		}
	}
	if conn == nil {
		<-d.inUse
		return nil, err
	}
	return conn, nil
}

func (d *dedicated) done(_ *sql.Conn, broken bool) {
	if broken {
		if conn := d.take(); conn != nil {
			discard(conn)
		}
	}
	<-d.inUse
}

func (d *dedicated) current() *sql.Conn {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.open
}

// gone reports whether the connection is.
func (d *dedicated) gone() bool { return d.current() == nil }

// take removes the connection from d.
func (d *dedicated) take() *sql.Conn {
	d.mu.Lock()
	conn := d.open
	d.open = nil
	d.mu.Unlock()
	if conn != nil && d.lost != nil {
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

// lend takes a connection out of the pool.
func (b *Backend) lend(ctx context.Context) (*dedicated, error) {
	type outcome struct {
		conn *sql.Conn
		err  error
	}
	got := make(chan outcome)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if !b.life.Go(func(context.Context) {
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
		return b.newDedicated(o.conn), nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: no connection to the database: %w", errNotSent, ctx.Err())
	}
}
