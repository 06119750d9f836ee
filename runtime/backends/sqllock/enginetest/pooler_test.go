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

// pooler is PgBouncer in transaction mode, as a driver: each statement, or each
// transaction, gets whichever of its few sessions is free, the last used first; or
// the first, if it rotates.
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

// pooled is what a client of the pooler takes for a session.
type pooled struct {
	p    *pooler
	kept driver.Conn // for a transaction
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

// QueryContext returns rows that were read to their end, as the session goes to
// another at once.
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
					row[i] = bytes.Clone(text) // the session's buffer
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

// pooler returns one before the site's server.
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

// backends returns what makes Backends for s behind p.
func (p *pooler) backends(s *site) func() *sqllock.Backend {
	db := sql.OpenDB(p)
	s.t.Cleanup(func() {
		_ = db.Close()
		p.close()
	})
	if s.driver == "pgx" { // MySQL's connector says whose it is
		s.options.Dialect = sqllock.Postgres
	}
	return func() *sqllock.Backend { return s.backendOn(db) }
}

// S79: a pooler that shares sessions is found out before the first lock.
func TestPoolerOfTransactionsIsRefused(t *testing.T) {
	each(t, inSessions, func(t *testing.T, s *site) {
		b := s.pooler().backends(s)
		for range 5 {
			_, err := b().Acquire(t.Context(), attempt("k", time.Minute))
			require.ErrorContains(t, err, "pooler")
			require.NotErrorIs(t, err, lock.ErrIndeterminate)
		}
		s.options.Strategy = sqllock.Table // which has no need of sessions
		l := acquire(t, b(), attempt("k", time.Minute))
		require.NoError(t, l.Release(t.Context(), first(l)))
	})
}

// One look at its sessions can be met by others' traffic, so that it shows nothing:
// here they take turns, and the first look finds each where it was.
func TestPoolerIsLookedAtOften(t *testing.T) {
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

// A lock that turns up in another session than it was taken in is lost, and the
// next one is not taken before sessions are looked at again.
func TestPoolerThatShowsLate(t *testing.T) {
	each(t, isAdvisory, func(t *testing.T, s *site) {
		w, db := s.watched()
		s.options.Renewals = s.db
		b := s.backendOn(db)
		l := acquire(t, b, attempt("k", time.Minute))
		looks := w.transactions.Load()
		acquire(t, b, attempt("other", time.Minute))
		require.Equal(t, looks, w.transactions.Load(), "once is enough")
		for _, c := range w.opened() {
			require.NoError(t, c.swap())
			t.Cleanup(func() { _ = c.Conn.Close() }) // of what the pool had closed
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
