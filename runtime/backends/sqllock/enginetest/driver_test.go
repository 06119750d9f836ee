package enginetest

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/runtime/backends/sqllock"
)

// watched is a driver around a database's own driver. It counts the statements that are under way
// at once, and can make statements ignore their contexts.
type watched struct {
	own    driver.Driver
	source string

	mu        sync.Mutex
	stuck     chan struct{} // unless nil, statements wait for it to be closed
	meets     func(text string) error
	forgotten error  // returned in place of a forgotten answer; driver.ErrBadConn unless set
	now, most int    // statements under way
	held      int    // statements that are stuck
	whenStuck func() // unless nil, called when a statement gets stuck
	conns     []*watchedConn

	transactions atomic.Int64 // how many were begun
}

// watched returns a driver, and a pool that uses it.
func (s *site) watched() (*watched, *sql.DB) {
	w := &watched{own: s.db.Driver(), source: s.source(s.addr)}
	db := sql.OpenDB(w)
	s.t.Cleanup(func() { require.NoError(s.t, db.Close()) })
	return w, db
}

func (w *watched) Driver() driver.Driver { return w.own }

// meet makes w call f before each statement, and with "connect" before each new
// connection. If f returns an error, that is the answer, and the connection is closed.
func (w *watched) meet(f func(text string) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.meets = f
}

func (w *watched) met(text string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.meets == nil {
		return nil
	}
	return w.meets(text)
}

func (w *watched) Connect(context.Context) (driver.Conn, error) {
	if err := w.met("connect"); err != nil {
		return nil, err
	}
	conn, err := w.own.Open(w.source)
	if err != nil {
		return nil, err
	}
	c := &watchedConn{Conn: conn, w: w}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conns = append(w.conns, c)
	return c, nil
}

// stick makes statements wait from now on until unstick is called.
func (w *watched) stick() (unstick func()) {
	stuck := make(chan struct{})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stuck = stuck
	return sync.OnceFunc(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.stuck = nil
		close(stuck)
	})
}

// untilStuck returns a context that ends when the next statement gets stuck.
func (w *watched) untilStuck(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.whenStuck = cancel
	return ctx
}

// stuckStatements returns how many statements are stuck.
func (w *watched) stuckStatements() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.held
}

// ofPurge reports whether a statement looks for rows to remove. A Backend sends such statements at random
// times.
func ofPurge(text string) bool { return strings.HasPrefix(text, "SELECT l.name") }

func (c *watchedConn) begin(text string) (end func()) {
	w := c.w
	w.mu.Lock()
	defer w.mu.Unlock()
	stuck := c.stuck
	if stuck == nil {
		stuck = w.stuck
	}
	if stuck != nil {
		if w.whenStuck != nil {
			w.whenStuck()
		}
		w.held++
		w.mu.Unlock()
		<-stuck
		w.mu.Lock()
		w.held--
	}
	if ofPurge(text) {
		return func() {}
	}
	w.now++
	w.most = max(w.most, w.now)
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.now--
	}
}

type watchedConn struct {
	driver.Conn
	w     *watched
	stuck chan struct{} // unless nil, its statements wait for it to be closed

	forgets atomic.Bool // whether the next answer is to be forgotten
}

// answer returns the answer to a statement, unless it is to be forgotten.
func answer[T any](c *watchedConn, text string, a T, err error) (T, error) {
	if err == nil && !ofPurge(text) && c.forgets.Swap(false) {
		var none T
		_ = c.Conn.Close()
		return none, cmp.Or(c.w.forgotten, driver.ErrBadConn)
	}
	return a, err
}

// stick makes the statements of this connection wait until unstick is called.
func (c *watchedConn) stick() (unstick func()) {
	stuck := make(chan struct{})
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	c.stuck = stuck
	return sync.OnceFunc(func() { close(stuck) })
}

// exec runs a statement of the test on the connection, which must be idle.
func (c *watchedConn) exec(ctx context.Context, text string) error {
	_, err := c.Conn.(driver.ExecerContext).ExecContext(ctx, text, nil)
	return err
}

// swap gives the connection another session. The connection must be idle.
func (c *watchedConn) swap() error {
	_ = c.Conn.Close() // it may be closed already
	conn, err := c.w.own.Open(c.w.source)
	c.Conn = conn
	return err
}

// requireIdle waits until b, which has acquired a lock, has nothing under way. With the first lock, a Backend
// also asks the database which server it is.
func requireIdle(t testing.TB, b *sqllock.Backend) {
	t.Helper()
	require.Eventually(t, func() bool { return len(b.Servers()) > 0 }, waitLimit, time.Millisecond)
}

// opened returns the connections that have been made so far.
func (w *watched) opened() []*watchedConn {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.conns)
}

func (c *watchedConn) ExecContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Result, error) {
	defer c.begin(text)()
	if err := c.w.met(text); err != nil {
		_ = c.Conn.Close()
		return nil, err
	}
	if text == "START TRANSACTION" {
		c.w.transactions.Add(1)
	}
	result, err := c.Conn.(driver.ExecerContext).ExecContext(ctx, text, args)
	return answer(c, text, result, err)
}

func (c *watchedConn) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	defer c.begin(text)()
	if err := c.w.met(text); err != nil {
		_ = c.Conn.Close()
		return nil, err
	}
	rows, err := c.Conn.(driver.QueryerContext).QueryContext(ctx, text, args)
	return answer(c, text, rows, err)
}

// A driver that ignores contexts keeps nobody waiting: a call ends with its context.
func TestStuckDriverDelaysNobody(t *testing.T) {
	each(t, nil, func(t *testing.T, s *site) {
		w, db := s.watched()
		b := s.backendOn(db)
		l := acquire(t, b, attempt("k", time.Minute))
		require.NoError(t, l.Release(t.Context(), first(l)))
		held := acquire(t, b, attempt("held", time.Minute))
		unstick := w.stick()
		t.Cleanup(unstick)
		ends := func(what string, call func(ctx context.Context) error) {
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			begin, done := time.Now(), make(chan error, 1)
			go func() { done <- call(ctx) }()
			select {
			case err := <-done:
				require.ErrorIs(t, err, context.DeadlineExceeded, what)
			case <-time.After(waitLimit):
			}
			require.Less(t, time.Since(begin), 300*time.Millisecond+meter.Since(begin), what)
		}
		a := attempt("k", time.Minute)
		ends("Acquire", func(ctx context.Context) error { _, err := b.Acquire(ctx, a); return err })
		ends("Undo", func(ctx context.Context) error { return b.Undo(ctx, a) })
		ends("Renew", func(ctx context.Context) error { return held.Renew(ctx, time.Minute) })
		ends("Release", func(ctx context.Context) error { return held.Release(ctx, first(held)) })
		unstick()
		require.NoError(t, b.Undo(t.Context(), a))
	})
}

// SQLite has one writer at a time, and a writer that finds it busy tries again after a while.
// So a Backend sends its own statements one after another.
func TestStatementsOnAFileTakeTurns(t *testing.T) {
	s := variant{engine: "sqlite"}.site(t, "")
	w, db := s.watched()
	b := s.backendOn(db)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := range 5 {
				a := attempt(fmt.Sprint("k", i, j), time.Minute)
				l, err := b.Acquire(t.Context(), a)
				if err == nil {
					err = l.Release(t.Context(), first(l))
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	require.Equal(t, 1, w.most)
}

// One of PostgreSQL's drivers returns driver.ErrBadConn also for a statement that it has
// sent. Such a statement may have run.
func TestBadConnectionMayHaveSent(t *testing.T) {
	s := variant{"postgres", sqllock.Table}.site(t, "")
	w, db := s.watched()
	w.own = struct{ driver.Driver }{w.own} // a driver that sqllock does not know
	s.options.Dialect, s.options.Renewals = sqllock.Postgres, s.db
	b := s.backendOn(db)
	forget := func() {
		for _, c := range w.opened() {
			c.forgets.Store(true)
		}
	}
	l := acquire(t, b, attempt("k", time.Minute))
	forget()
	require.NoError(t, l.Release(t.Context(), first(l)), "Release failed, although its first attempt had released the lock")
	acquire(t, b, attempt("other", time.Minute))
	forget()
	a := attempt("k", time.Minute)
	acquire(t, b, a)
	require.True(t, a.MayHaveRun)
}

// stuckDial is a watched driver. Its first dial whose context has no value for the key exempt hangs until
// that context ends.
type stuckDial struct {
	*watched
	exempt any
	once   sync.Once
	hangs  chan struct{} // closed when the dial hangs
}

func (d *stuckDial) Connect(ctx context.Context) (conn driver.Conn, err error) {
	if ctx.Value(d.exempt) == nil {
		d.once.Do(func() {
			close(d.hangs)
			<-ctx.Done()
			err = ctx.Err()
		})
	}
	if err != nil {
		return nil, err
	}
	return d.watched.Connect(ctx)
}

// If a dial of the connection for renewals hangs, it is given up, so that a renewal can dial another. A
// network may lose what a dial sent, and a dialer may wait for minutes.
func TestStuckDialKeepsNoRenewalWaiting(t *testing.T) {
	t.Parallel()
	each(t, func(v variant) bool { return onTables(v) && served(v) }, func(t *testing.T, s *site) {
		w, _ := s.watched()
		type exempt struct{}
		d := &stuckDial{watched: w, exempt: exempt{}, hangs: make(chan struct{})}
		db := sql.OpenDB(d)
		db.SetMaxIdleConns(-1) // otherwise the first connection may also serve renewals, once Acquire has returned it
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		b := s.backendOn(db)
		ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), exempt{}, true), waitLimit)
		defer cancel()
		l, err := b.Acquire(ctx, attempt("k", time.Minute))
		require.NoError(t, err)
		select {
		case <-d.hangs:
		case <-ctx.Done():
			t.Fatal("no connection for renewals was dialed")
		}
		require.NoError(t, l.Renew(ctx, time.Minute))
		require.NoError(t, l.Release(ctx, first(l)))
	})
}

// MySQL closes a connection that was idle for wait_timeout, and gives the reason in place of an answer.
// If the connection for renewals was closed so, the renewal uses another one.
func TestRenewalOnAConnectionThatWasIdle(t *testing.T) {
	t.Parallel()
	s := variant{"mariadb", sqllock.Table}.site(t, "") // MariaDB closes it without giving a reason
	w, db := s.watched()
	b := s.backendOn(db)
	l := acquire(t, b, attempt("k", time.Minute))
	require.NoError(t, l.Renew(t.Context(), time.Minute))
	idle := &mysql.MySQLError{Number: 4031, Message: "The client was disconnected by the server because of inactivity."}
	closed := false
	w.meet(func(text string) error {
		if closed || !strings.HasPrefix(text, "UPDATE ") {
			return nil
		}
		closed = true
		return idle
	})
	require.NoError(t, l.Renew(t.Context(), time.Minute))
	require.True(t, closed)
	require.NoError(t, l.Release(t.Context(), first(l)))
}
