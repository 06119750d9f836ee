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

// watched is a database's own driver. It counts the statements that are under way
// at once, and can be told to mind no context.
type watched struct {
	own    driver.Driver
	source string

	mu        sync.Mutex
	stuck     chan struct{} // unless nil, statements wait for it to be closed
	meets     func(text string) error
	forgotten error  // that tells of an answer that was forgotten; driver.ErrBadConn unless set
	now, most int    // statements under way
	held      int    // statements that are stuck
	whenStuck func() // unless nil, called as a statement is stuck
	conns     []*watchedConn

	transactions atomic.Int64 // begun
}

// watched returns a pool whose driver is.
func (s *site) watched() (*watched, *sql.DB) {
	w := &watched{own: s.db.Driver(), source: s.source(s.addr)}
	db := sql.OpenDB(w)
	s.t.Cleanup(func() { require.NoError(s.t, db.Close()) })
	return w, db
}

func (w *watched) Driver() driver.Driver { return w.own }

// meet has f called with each statement that is about to be sent, and with
// "connect". Its error is the answer then, and the connection is cut.
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

// stick has statements from now on end when loose is called, and not before.
func (w *watched) stick() (loose func()) {
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

// untilStuck returns a context that ends as the next statement is stuck.
func (w *watched) untilStuck(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.whenStuck = cancel
	return ctx
}

// holds returns how many statements are stuck.
func (w *watched) holds() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.held
}

// ofPurge reports whether a statement looks for rows to be removed, as a Backend does at a time that it
// draws by lot.
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

	forgets atomic.Bool // the next answer
}

// answer passes on that of a statement, unless it is to be forgotten.
func answer[T any](c *watchedConn, text string, a T, err error) (T, error) {
	if err == nil && !ofPurge(text) && c.forgets.Swap(false) {
		var none T
		_ = c.Conn.Close()
		return none, cmp.Or(c.w.forgotten, driver.ErrBadConn)
	}
	return a, err
}

// stick is that of one connection.
func (c *watchedConn) stick() (loose func()) {
	stuck := make(chan struct{})
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	c.stuck = stuck
	return sync.OnceFunc(func() { close(stuck) })
}

// exec runs a statement of the test's own on the connection, which is idle.
func (c *watchedConn) exec(ctx context.Context, text string) error {
	_, err := c.Conn.(driver.ExecerContext).ExecContext(ctx, text, nil)
	return err
}

// swap puts another session in place of the connection's own, which is idle.
func (c *watchedConn) swap() error {
	_ = c.Conn.Close() // unless it was
	conn, err := c.w.own.Open(c.w.source)
	c.Conn = conn
	return err
}

// requireIdle requires that b, which has taken a lock, has nothing under way: with the first one
// goes a question, beside.
func requireIdle(t testing.TB, b *sqllock.Backend) {
	t.Helper()
	require.Eventually(t, func() bool { return len(b.Servers()) > 0 }, patience, time.Millisecond)
}

// opened returns the connections that were made so far.
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

// A driver that minds no context keeps nobody: a call ends with its context.
func TestStuckDriverKeepsNobody(t *testing.T) {
	each(t, nil, func(t *testing.T, s *site) {
		w, db := s.watched()
		b := s.backendOn(db)
		l := acquire(t, b, attempt("k", time.Minute))
		require.NoError(t, l.Release(t.Context(), first(l)))
		held := acquire(t, b, attempt("held", time.Minute))
		loose := w.stick()
		t.Cleanup(loose)
		ends := func(what string, call func(ctx context.Context) error) {
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			begin, done := time.Now(), make(chan error, 1)
			go func() { done <- call(ctx) }()
			select {
			case err := <-done:
				require.ErrorIs(t, err, context.DeadlineExceeded, what)
			case <-time.After(patience):
			}
			require.Less(t, time.Since(begin), 300*time.Millisecond+meter.Since(begin), what)
		}
		a := attempt("k", time.Minute)
		ends("Acquire", func(ctx context.Context) error { _, err := b.Acquire(ctx, a); return err })
		ends("Undo", func(ctx context.Context) error { return b.Undo(ctx, a) })
		ends("Renew", func(ctx context.Context) error { return held.Renew(ctx, time.Minute) })
		ends("Release", func(ctx context.Context) error { return held.Release(ctx, first(held)) })
		loose()
		require.NoError(t, b.Undo(t.Context(), a))
	})
}

// SQLite has one writer at a time, and who finds it busy looks again after a while;
// so a Backend does not have its own statements meet.
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

// Of PostgreSQL's drivers one says driver.ErrBadConn also of a statement that it has
// sent: it may have run.
func TestBadConnectionMayHaveSent(t *testing.T) {
	s := variant{"postgres", sqllock.Table}.site(t, "")
	w, db := s.watched()
	w.own = struct{ driver.Driver }{w.own} // one that is not known
	s.options.Dialect, s.options.Renewals = sqllock.Postgres, s.db
	b := s.backendOn(db)
	forget := func() {
		for _, c := range w.opened() {
			c.forgets.Store(true)
		}
	}
	l := acquire(t, b, attempt("k", time.Minute))
	forget()
	require.NoError(t, l.Release(t.Context(), first(l)), "it had been freed")
	acquire(t, b, attempt("other", time.Minute))
	forget()
	a := attempt("k", time.Minute)
	acquire(t, b, a)
	require.True(t, a.MayHaveRun)
}

// stuckDial is a watched driver. Its first dial in a context that has no value for the key patient
// hangs until that context ends.
type stuckDial struct {
	*watched
	patient any
	once    sync.Once
	hangs   chan struct{} // closed when it does
}

func (d *stuckDial) Connect(ctx context.Context) (conn driver.Conn, err error) {
	if ctx.Value(d.patient) == nil {
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

// A dial for the renewals' connection that hangs is given up, so that a renewal can have another:
// a network may lose what a dial sent, and a dialer wait for minutes.
func TestStuckDialKeepsNoRenewalWaiting(t *testing.T) {
	t.Parallel()
	each(t, func(v variant) bool { return onTables(v) && served(v) }, func(t *testing.T, s *site) {
		w, _ := s.watched()
		type patient struct{}
		d := &stuckDial{watched: w, patient: patient{}, hangs: make(chan struct{})}
		db := sql.OpenDB(d)
		db.SetMaxIdleConns(-1) // else the first connection may be the renewals' too, once Acquire has given it back
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		b := s.backendOn(db)
		ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), patient{}, true), patience)
		defer cancel()
		l, err := b.Acquire(ctx, attempt("k", time.Minute))
		require.NoError(t, err)
		select {
		case <-d.hangs:
		case <-ctx.Done():
			t.Fatal("nothing dials for the renewals' connection")
		}
		require.NoError(t, l.Renew(ctx, time.Minute))
		require.NoError(t, l.Release(ctx, first(l)))
	})
}

// MySQL says of a connection that was idle for wait_timeout why it has closed it, in place of an
// answer. The renewals' connection may have been: the renewal goes by another one.
func TestRenewalOnAConnectionThatWasIdle(t *testing.T) {
	t.Parallel()
	s := variant{"mariadb", sqllock.Table}.site(t, "") // which closes it without a word
	w, db := s.watched()
	b := s.backendOn(db)
	l := acquire(t, b, attempt("k", time.Minute))
	require.NoError(t, l.Renew(t.Context(), time.Minute))
	idle := &mysql.MySQLError{Number: 4031, Message: "The client was disconnected by the server because of inactivity."}
	told := false
	w.meet(func(text string) error {
		if told || !strings.HasPrefix(text, "UPDATE ") {
			return nil
		}
		told = true
		return idle
	})
	require.NoError(t, l.Renew(t.Context(), time.Minute))
	require.True(t, told)
	require.NoError(t, l.Release(t.Context(), first(l)))
}
