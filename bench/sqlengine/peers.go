package main

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"strings"
	"time"

	_ "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/sqllock"
)

// sqlEngine is a database and the peers that are measured on it.
type sqlEngine struct {
	server, env string // for package testserver; empty for a file
	driver      string
	source      func(addr, file string) string
	peers       []*peer
}

// peer is one kind of lock.
type peer struct {
	name string
	open func(source string) (client, error)
}

// client takes locks for one process.
type client interface {
	lock(ctx context.Context, key string) (unlock func() error, err error)
	close()
}

var engines = map[string]*sqlEngine{
	"mysql": {"mariadb", "LOCKGEN_TEST_MYSQL", "mysql",
		func(addr, _ string) string { return "root@tcp(" + addr + ")/mysql?interpolateParams=true" },
		[]*peer{
			ours("mysql", sqllock.Table, nil), ours("mysql", sqllock.RowLock, nil), ours("mysql", sqllock.Advisory, nil),
			session("GET_LOCK", "mysql", "SELECT GET_LOCK(?, 60)", "SELECT RELEASE_LOCK(?)", func(key string) any { return key }),
			row("mysql", "INSERT IGNORE INTO bench_rows (name) VALUES (?)", "DELETE FROM bench_rows WHERE name = ?"),
		}},
	"postgres": {"postgresql", "LOCKGEN_TEST_POSTGRES", "pgx",
		func(addr, _ string) string { return "postgres://lockgen@" + addr + "/postgres?sslmode=disable" },
		[]*peer{
			ours("pgx", sqllock.Table, nil),
			ours("pgx", sqllock.Table, func(source string) sqllock.Notifier { return notifier(source) }),
			ours("pgx", sqllock.RowLock, nil), ours("pgx", sqllock.Advisory, nil),
			session("pg_advisory_lock", "pgx", "SELECT 1 FROM pg_advisory_lock($1)", "SELECT pg_advisory_unlock($1)::int",
				func(key string) any { return sqllock.PostgresKey(key) }),
			row("pgx", "INSERT INTO bench_rows (name) VALUES ($1) ON CONFLICT DO NOTHING", "DELETE FROM bench_rows WHERE name = $1"),
		}},
	"sqlite": {"", "", "sqlite",
		func(_, file string) string {
			return "file:" + file + "?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)"
		},
		[]*peer{
			ours("sqlite", sqllock.Table, nil),
			row("sqlite", "INSERT OR IGNORE INTO bench_rows (name) VALUES (?)", "DELETE FROM bench_rows WHERE name = ?"),
		}},
}

func open(driver, source string) (*sql.DB, error) {
	db, err := sql.Open(driver, source)
	if err == nil {
		db.SetMaxIdleConns(goroutines + 4)
	}
	return db, err
}

// prepare creates the tables of the peers.
func (e *sqlEngine) prepare(source string) error {
	db, err := open(e.driver, source)
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.Exec("CREATE TABLE IF NOT EXISTS bench_rows (name VARCHAR(200) PRIMARY KEY)"); err != nil {
		return err
	}
	o := sqllock.Options{}
	if e.server != "" {
		o.Strategy = sqllock.RowLock
	}
	b, err := sqllock.New(db, o)
	if err != nil {
		return err
	}
	return errors.Join(b.Migrate(context.Background()), b.Close())
}

type lockgen struct {
	db     *sql.DB
	locker *lock.Locker
}

func ours(driver string, s sqllock.Strategy, n func(source string) sqllock.Notifier) *peer {
	name := "lockgen " + s.String()
	if n != nil {
		name += ", LISTEN"
	}
	return &peer{name, func(source string) (client, error) {
		db, err := open(driver, source)
		if err != nil {
			return nil, err
		}
		o := sqllock.Options{Strategy: s}
		if n != nil {
			o.Notifier = n(source)
		}
		b, err := sqllock.New(db, o)
		if err != nil {
			return nil, err
		}
		return &lockgen{db, lock.New(b, nil)}, nil
	}}
}

func (c *lockgen) lock(ctx context.Context, key string) (func() error, error) {
	_, held, err := c.locker.Acquire(ctx, nil, key)
	return func() (err error) {
		held.Release(&err)
		return err
	}, err
}

func (c *lockgen) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = c.locker.Close(ctx)
	_ = c.db.Close()
}

// sessionLock uses the server's own lock and queue. Each waiter and each holder has a connection.
type sessionLock struct {
	db         *sql.DB
	take, free string
	arg        func(key string) any
}

func session(name, driver, take, free string, arg func(string) any) *peer {
	return &peer{name, func(source string) (client, error) {
		db, err := open(driver, source)
		return &sessionLock{db, take, free, arg}, err
	}}
}

func (c *sessionLock) lock(ctx context.Context, key string) (func() error, error) {
	conn, err := c.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	var got int
	if err := conn.QueryRowContext(ctx, c.take, c.arg(key)).Scan(&got); err != nil || got != 1 {
		return nil, errors.Join(err, conn.Close(), errors.New("not taken"))
	}
	return func() error {
		var freed int
		err := conn.QueryRowContext(ctx, c.free, c.arg(key)).Scan(&freed)
		return errors.Join(err, conn.Close())
	}, nil
}

func (c *sessionLock) close() { _ = c.db.Close() }

// rowLock is a row that exists while the lock is held. Its waiters poll every 1 ms.
type rowLock struct {
	db         *sql.DB
	take, free string
}

func row(driver, take, free string) *peer {
	return &peer{"insert/delete row", func(source string) (client, error) {
		db, err := open(driver, source)
		return &rowLock{db, take, free}, err
	}}
}

func (c *rowLock) lock(ctx context.Context, key string) (func() error, error) {
	for {
		r, err := c.exec(ctx, c.take, key)
		if err != nil {
			return nil, err
		}
		if n, err := r.RowsAffected(); err != nil || n == 1 {
			return func() error {
				_, err := c.exec(ctx, c.free, key)
				return err
			}, err
		}
		time.Sleep(3*time.Millisecond/4 + rand.N(time.Millisecond/2))
	}
}

// exec runs a statement. It sends the statement again if InnoDB chose it as the victim of a
// deadlock, which happens when many insert and delete one row.
func (c *rowLock) exec(ctx context.Context, statement, key string) (r sql.Result, err error) {
	for {
		r, err = c.db.ExecContext(ctx, statement, key)
		if err == nil || !strings.Contains(err.Error(), "Error 1213") {
			return r, err
		}
	}
}

func (c *rowLock) close() { _ = c.db.Close() }

// notifier is the Notifier of sqllock's documentation.
type notifier string

func (n notifier) Listen(ctx context.Context, channel string, ready func(), notice func(string)) error {
	conn, err := pgx.Connect(ctx, string(n))
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
		return err
	}
	ready()
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			return err
		}
		notice(n.Payload)
	}
}
