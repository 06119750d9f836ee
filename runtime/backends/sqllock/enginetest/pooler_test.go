package enginetest

import (
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/sqllock"
)

// pooler is a driver that behaves like PgBouncer in transaction mode. Each statement, or each
// transaction, gets one of the few sessions that is free: the one that was used last, or, if
// rotates is set, the one whose last use is longest ago.
type pooler struct {
	driver.Connector
	mu      sync.Mutex
	free    []driver.Conn
	rotates bool
}

func (p *pooler) Connect(context.Context) (driver.Conn, error) { return &pooled{p: p}, nil }

func (p *pooler) get(ctx context.Context) (driver.Conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.free); n > 0 {
		c := p.free[n-1]
		p.free = p.free[:n-1]
		return c, nil
	}
	return p.Connector.Connect(ctx)
}

func (p *pooler) put(c driver.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, c)
	if p.rotates {
		copy(p.free[1:], p.free)
		p.free[0] = c
	}
}

func (p *pooler) close() {
	for _, c := range p.free {
		_ = c.Close()
	}
}

// pooled is a connection to the pooler. To its client it looks like a session.
type pooled struct {
	p    *pooler
	kept driver.Conn // the session of a transaction
}

func (c *pooled) with(ctx context.Context, text string, f func(driver.Conn) error) error {
	session := c.kept
	if session == nil {
		var err error
		if session, err = c.p.get(ctx); err != nil {
			return err
		}
	}
	err := f(session)
	switch {
	case strings.HasPrefix(text, "START"):
		c.kept = session
	case text == "ROLLBACK" || c.kept == nil:
		c.kept = nil
		c.p.put(session)
	}
	return err
}

func (c *pooled) ExecContext(ctx context.Context, text string, args []driver.NamedValue) (r driver.Result, err error) {
	err = c.with(ctx, text, func(s driver.Conn) error {
		r, err = s.(driver.ExecerContext).ExecContext(ctx, text, args)
		return err
	})
	return r, err
}

// QueryContext reads all rows before it returns, because the session then goes to
// another client.
func (c *pooled) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (read driver.Rows, err error) {
	err = c.with(ctx, text, func(s driver.Conn) error {
		rows, err := s.(driver.QueryerContext).QueryContext(ctx, text, args)
		if err != nil {
			return err
		}
		defer rows.Close()
		all := &readRows{columns: rows.Columns()}
		for {
			row := make([]driver.Value, len(all.columns))
			if rows.Next(row) != nil {
				break
			}
			for i, value := range row {
				if text, ok := value.([]byte); ok {
					row[i] = bytes.Clone(text) // the session reuses its buffer
				}
			}
			all.rows = append(all.rows, row)
		}
		read = all
		return nil
	})
	return read, err
}

func (c *pooled) Prepare(string) (driver.Stmt, error) { return nil, driver.ErrSkip }
func (c *pooled) Begin() (driver.Tx, error)           { return nil, driver.ErrSkip }

func (c *pooled) Close() error {
	if c.kept != nil {
		_ = c.kept.Close()
	}
	return nil
}

// pooler returns a pooler in front of the site's server.
func (s *site) pooler() *pooler {
	s.t.Helper()
	if s.driver == "mysql" {
		config, err := mysql.ParseDSN(s.source(s.addr))
		require.NoError(s.t, err)
		connector, err := mysql.NewConnector(config)
		require.NoError(s.t, err)
		return &pooler{Connector: connector}
	}
	config, err := pgx.ParseConfig(s.source(s.addr))
	require.NoError(s.t, err)
	return &pooler{Connector: stdlib.GetConnector(*config)}
}

// backends returns a function that makes Backends for s behind p.
func (p *pooler) backends(s *site) func() *sqllock.Backend {
	db := sql.OpenDB(p)
	s.t.Cleanup(func() {
		_ = db.Close()
		p.close()
	})
	if s.driver == "pgx" { // MySQL's connector tells the dialect
		s.options.Dialect = sqllock.Postgres
	}
	return func() *sqllock.Backend { return s.backendOn(db) }
}

// S79: a pooler that shares sessions is detected before the first lock.
func TestPoolerOfTransactionsIsRefused(t *testing.T) {
	each(t, inSessions, func(t *testing.T, s *site) {
		b := s.pooler().backends(s)
		for range 5 {
			_, err := b().Acquire(t.Context(), attempt("k", time.Minute))
			require.ErrorContains(t, err, "pooler")
			require.NotErrorIs(t, err, lock.ErrIndeterminate)
		}
		s.options.Strategy = sqllock.Table // Table needs no sessions
		l := acquire(t, b(), attempt("k", time.Minute))
		require.NoError(t, l.Release(t.Context(), first(l)))
	})
}

// The traffic of other clients can hide the pooler from one look at the sessions.
// Here the sessions take turns, and the first look finds each where it was.
func TestPoolerIsExaminedRepeatedly(t *testing.T) {
	each(t, inSessions, func(t *testing.T, s *site) {
		p := s.pooler()
		p.rotates = true
		for range 2 {
			session, err := p.Connector.Connect(t.Context())
			require.NoError(t, err)
			p.put(session)
		}
		_, err := p.backends(s)().Acquire(t.Context(), attempt("k", time.Minute))
		require.ErrorContains(t, err, "pooler")
	})
}

// A lock that is found in another session than it was taken in is lost. Before the
// next lock, the sessions are examined again.
func TestPoolerThatIsDetectedLate(t *testing.T) {
	each(t, isAdvisory, func(t *testing.T, s *site) {
		w, db := s.watched()
		s.options.Renewals = s.db
		b := s.backendOn(db)
		l := acquire(t, b, attempt("k", time.Minute))
		looks := w.transactions.Load()
		acquire(t, b, attempt("other", time.Minute))
		require.Equal(t, looks, w.transactions.Load(), "the sessions were looked at again")
		for _, c := range w.opened() {
			require.NoError(t, c.swap())
			t.Cleanup(func() { _ = c.Conn.Close() }) // also those that the pool had closed
		}
		require.ErrorIs(t, l.Renew(t.Context(), time.Minute), lock.ErrLost)
		acquire(t, b, attempt("third", time.Minute))
		require.Greater(t, w.transactions.Load(), looks)
	})
}

type readRows struct {
	columns []string
	rows    [][]driver.Value
}

func (r *readRows) Columns() []string { return r.columns }
func (r *readRows) Close() error      { return nil }
func (r *readRows) Next(into []driver.Value) error {
	if len(r.rows) == 0 {
		return io.EOF
	}
	copy(into, r.rows[0])
	r.rows = r.rows[1:]
	return nil
}
