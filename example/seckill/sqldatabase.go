package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	_ "modernc.org/sqlite"             // the driver "sqlite"

	"github.com/lockgen/lockgen/runtime/backends/sqllock"
	"github.com/lockgen/lockgen/runtime/driver"
)

// sqlBackend is a SQL database with locks in a table.
type sqlBackend struct{ database }

// database is one kind of SQL database.
type database struct {
	name, title string
	driver      string
	source      func(where string) string // a data source name without secrets
}

var (
	mysqlDatabase = database{
		name: "mysql", title: "MySQL", driver: "mysql",
		source: func(addr string) string { return "root@tcp(" + addr + ")/seckill_locks" },
	}
	postgresDatabase = database{
		name: "postgres", title: "PostgreSQL", driver: "pgx",
		source: func(addr string) string { return "postgres://lockgen@" + addr + "/postgres?sslmode=disable" },
	}
	sqliteDatabase = database{
		name: "sqlite", title: "SQLite", driver: "sqlite",
		source: func(file string) string {
			return "file:" + file + "?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)"
		},
	}
)

// serve accepts HOST:PORT of a server without passwords, or a data source name for the driver. For
// SQLite it accepts a file, or nothing.
func (b sqlBackend) serve(ctx context.Context, address string) (on *engine, err error) {
	remove := func() {}
	label := b.title
	switch {
	case b.driver == "sqlite" && address == "":
		folder, err := os.MkdirTemp("", "seckill-locks-")
		if err != nil {
			return nil, fmt.Errorf("make a folder for the locks: %w", err)
		}
		remove = func() { os.RemoveAll(folder) } //nolint:errcheck // nobody is left who could read an error
		address = b.source(filepath.Join(folder, "locks.db"))
		label += " in a file of its own"
	case b.driver == "sqlite":
		label += " in " + address
		address = b.source(address)
	default:
		if _, _, err := net.SplitHostPort(address); err == nil {
			label += " at " + address
			address = b.source(address)
		}
	}
	defer func() {
		if err != nil {
			remove()
		}
	}()
	if err := b.prepare(ctx, address); err != nil {
		return nil, fmt.Errorf("no usable %s: %w", label, err)
	}
	if err := tryOut(ctx, b, address); err != nil {
		return nil, fmt.Errorf("no usable %s: %w", label, err)
	}
	return &engine{name: b.name, label: label, backend: b.name, address: address, shutdown: remove}, nil
}

// prepare creates the table, and on MySQL the database of the demo.
func (b sqlBackend) prepare(ctx context.Context, source string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, enginePatience)
	defer cancel()
	if b.driver == "mysql" {
		if err := makeDatabase(ctx, source); err != nil {
			return err
		}
	}
	db, err := sql.Open(b.driver, source)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	locks, err := sqllock.New(db)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, locks.Close()) }()
	return locks.Migrate(ctx)
}

func makeDatabase(ctx context.Context, source string) (err error) {
	config, err := mysql.ParseDSN(source)
	if err != nil {
		return usageError{fmt.Errorf("-address: %w; it looks like USER:PASSWORD@tcp(HOST:PORT)/DATABASE", err)}
	}
	name := config.DBName
	config.DBName = ""
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return err
	}
	db := sql.OpenDB(connector)
	defer func() { err = errors.Join(err, db.Close()) }()
	_, err = db.ExecContext(ctx, "CREATE DATABASE IF NOT EXISTS `"+name+"`")
	return err
}

func (b sqlBackend) open(source string) (driver.Backend, func() error, error) {
	db, err := sql.Open(b.driver, source)
	if err != nil {
		return nil, nil, err
	}
	locks, err := sqllock.New(db)
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	return locks, db.Close, nil
}
