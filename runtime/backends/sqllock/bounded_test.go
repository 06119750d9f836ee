package sqllock

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// dialer is a driver whose connections do nothing. It counts its dials.
type dialer struct{ dials atomic.Int64 }

func (d *dialer) Connect(context.Context) (sqldriver.Conn, error) {
	d.dials.Add(1)
	return idleConn{}, nil
}

func (d *dialer) Driver() sqldriver.Driver { return nil }

type idleConn struct{}

func (idleConn) Prepare(string) (sqldriver.Stmt, error) { return nil, errors.ErrUnsupported }
func (idleConn) Begin() (sqldriver.Tx, error)           { return nil, errors.ErrUnsupported }
func (idleConn) Close() error                           { return nil }

// A connection that other calls wait for at all times still returns to its pool now and then. The pool closes
// it when it is too old.
func TestSharedConnectionsAreReplaced(t *testing.T) {
	d := &dialer{}
	db := sql.OpenDB(d)
	defer db.Close()
	db.SetConnMaxLifetime(time.Nanosecond)
	b := newBounded(pool{db}, 1)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 1000 {
				conn, err := b.conn(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				time.Sleep(time.Microsecond) // so that others wait
				b.done(conn, false)
			}
		})
	}
	all.Wait()
	if n := d.dials.Load(); n < 2 || n > 1000 {
		t.Errorf("4000 statements of 4 goroutines had %d connections", n)
	}
	if n := db.Stats().InUse; n != 0 {
		t.Errorf("%d connections were not returned to the pool", n)
	}
}
