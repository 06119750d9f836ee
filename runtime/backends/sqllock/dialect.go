package sqllock

import (
	"database/sql"
	"fmt"
	"strings"
	"time"
)

// Dialect is a kind of database.
type Dialect int

const (
	Detect   Dialect = iota // by the name of the driver's type
	MySQL                   // MySQL from 8.0, MariaDB from 10.5
	Postgres                // PostgreSQL from 12
	SQLite                  // SQLite from 3.35
)

// String returns the name of the database.
func (d Dialect) String() string {
	return [...]string{"unknown", "MySQL", "PostgreSQL", "SQLite"}[d]
}

// drivers are the types of well-known drivers. A driver that is wrapped, for example
// for tracing, has another type: then the caller sets Options.Dialect.
var drivers = map[string]Dialect{
	"*mysql.MySQLDriver":    MySQL,    // github.com/go-sql-driver/mysql
	"*stdlib.Driver":        Postgres, // github.com/jackc/pgx/v5/stdlib
	"*pq.Driver":            Postgres, // github.com/lib/pq
	"pq.driverWrapper":      Postgres, // likewise, of a connector
	"*sqlite.Driver":        SQLite,   // modernc.org/sqlite
	"*sqlite3.SQLiteDriver": SQLite,   // github.com/mattn/go-sqlite3
}

func detect(db *sql.DB) (Dialect, error) {
	name := fmt.Sprintf("%T", db.Driver())
	d := drivers[name]
	if d == Detect {
		return d, fmt.Errorf("sqllock: New does not know the database of driver %s; set Options.Dialect", name)
	}
	return d, nil
}

// leaseMicros is how long a lease lasts by its row, in µs: longer than ttl where the clock
// is rounded down, so that a grant or a renewal at a rounded time does not end early.
func (d Dialect) leaseMicros(ttl time.Duration) int64 {
	if d == SQLite {
		ttl += time.Millisecond
	}
	return ttl.Microseconds()
}

// quoted returns a table's name, validated before, as an identifier.
func (d Dialect) quoted(table string) string {
	quote := `"`
	if d == MySQL {
		quote = "`"
	}
	return quote + strings.ReplaceAll(table, ".", quote+"."+quote) + quote
}

// macros are the expressions that the .sql files name. withKinds says that there is a table of
// the other kinds of lock, beside which no mutex is taken.
func (d Dialect) macros(table string, withKinds bool) map[string]string {
	m := map[string]string{
		"table":   d.quoted(table),
		"kinds":   d.quoted(kindsTable(table)),
		"rows":    d.quoted(rowsTable(table)),
		"channel": "'" + channel(table) + "'",
		// The server's number of a session, how long that waits in its queue, and what ends it.
		"session": "pg_backend_pid()", "seconds": fmt.Sprint(serverWaitLimit.Seconds()), "kill": "SELECT pg_terminate_backend({number}::int)::int",
		// Where the database is: NULL on a Unix socket.
		"address": "host(inet_server_addr()) || ':' || inet_server_port()",
		// The database's own clock, in µs since 1970 in UTC.
		"clock": "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint",

		"greatest": "greatest", "commits": "1", "committed": "",
		// The clock of take.sql; the first token of a new row; the highest token of a row that
		// exists, and how a statement answers with that.
		"now":     "(excluded.expires - {ttl})",
		"initial": "{clock} * 4",
		"fresh":   "{greatest}(version + 1, {clock} * 4) + {n} - 1", "tells": " RETURNING version",
		// No other kind of lock is at the key.
		"nootherkind": "1 = 1",
		// An INSERT that does nothing if the row exists; the FROM of a SELECT without a table; the
		// begin of a DELETE from a table with an alias.
		"insert": "INSERT", "unlessthere": " ON CONFLICT (name) DO NOTHING", "fromnone": "", "delete": "DELETE",

		// Of a record. {instant} is the clock for the times in it.
		"instant": "{clock}", "stamp": "{instant}", "returning": " RETURNING written",
	}
	if withKinds {
		m["nootherkind"] = "NOT EXISTS (SELECT 1 FROM {kinds} AS k WHERE k.name = {key} AND k.expires > {clock})"
	}
	switch d {
	case MySQL:
		m["session"], m["kill"], m["address"], m["delete"] = "CONNECTION_ID()", "KILL {number}", "CONCAT(@@hostname, ':', @@port)", "DELETE l"
		// The time when the statement began. UNIX_TIMESTAMP(NOW()) would go through local time, where
		// one hour of the year comes twice.
		m["clock"] = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"
		m["commits"], m["committed"] = "@@autocommit", " AND @@autocommit" // else nothing is taken or renewed
		m["fresh"], m["tells"] = "LAST_INSERT_ID(GREATEST(version + 1, {clock} * 4) + {n} - 1)", ""
		m["free"] = "(expires <= VALUES(acquired) AND waiting = '' AND undone_until <= VALUES(acquired) AND version <= VALUES(version) - {n})"
		m["insert"], m["unlessthere"], m["fromnone"] = "INSERT IGNORE", "", " FROM DUAL"
		m["stamp"], m["returning"] = "LAST_INSERT_ID({instant})", ""
	case SQLite:
		m["greatest"], m["address"] = "max", "(SELECT file FROM pragma_database_list WHERE name = 'main')"
		m["clock"] = "(CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)" // whole ms, rounded down
		// {instant} is a value: this machine's clock in µs, read before the statement is sent.
		// The database has the same clock, but {clock} rounds it down, so that a lease read
		// from a record would seem too long.
		delete(m, "instant")
		// A row that somebody deleted may have had tokens of this millisecond.
		m["initial"] = "max({clock}, {instant}) * 4"
	}
	return m
}
