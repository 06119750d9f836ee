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
	return map[Dialect]string{MySQL: "MySQL", Postgres: "PostgreSQL", SQLite: "SQLite"}[d]
}

// drivers are the types of well-known drivers. One that is wrapped, to trace it,
// has another, and then the caller must say.
var drivers = map[string]Dialect{
	"*mysql.MySQLDriver":    MySQL,    // github.com/go-sql-driver/mysql
	"*stdlib.Driver":        Postgres, // github.com/jackc/pgx/v5/stdlib
	"*pq.Driver":            Postgres, // github.com/lib/pq
	"*sqlite.Driver":        SQLite,   // modernc.org/sqlite
	"*sqlite3.SQLiteDriver": SQLite,   // github.com/mattn/go-sqlite3
}

func detect(db *sql.DB) (Dialect, error) {
	name := fmt.Sprintf("%T", db.Driver())
	d := drivers[strings.Replace(name, "pq.driverWrapper", "*pq.Driver", 1)]
	if d == Detect {
		return d, fmt.Errorf("sqllock: New does not know the database of driver %s; set Options.Dialect", name)
	}
	return d, nil
}

// clock is the database's own, in µs since 1970 in UTC. In MySQL it is that of the statement's
// begin; UNIX_TIMESTAMP(NOW()) would pass through local time, of which an hour comes twice a
// year. SQLite's has whole milliseconds, rounded down.
func (d Dialect) clock() string {
	switch d {
	case MySQL:
		return "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"
	case Postgres:
		return "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
	default:
		return "(CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)"
	}
}

// term is how long a row says that a lease lasts, in µs: a clock that was rounded
// down at the grant, or the renewal, must not end it early.
func (d Dialect) term(ttl time.Duration) int64 {
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

// macros are the expressions that the .sql files name. With kinds, nothing is taken beside another
// kind of lock.
func (d Dialect) macros(table string, kinds bool) map[string]string {
	m := map[string]string{
		"table":   d.quoted(table),
		"kinds":   d.quoted(kindsTable(table)),
		"clock":   d.clock(),
		"channel": "'" + channel(table) + "'",

		// Of a record. {instant} is the clock for the times in it.
		"instant": "{clock}", "stamp": "{instant}", "commits": "1", "returning": " RETURNING written",
		"l": "l.", "as": " AS l", "conflict": "ON CONFLICT (name) DO UPDATE SET",
		"greatest": "greatest", "least": "least", "instr": "instr", "committed": "",

		// The first token of a new row.
		"initial": "{clock} * 4",
		// How a statement tells the tokens of a new lease.
		"told": "", "first": " RETURNING 0, version",

		// No other kind of lock is at the key.
		"apart": "1 = 1", "allapart": "1 = 1",
		// Plainly free.
		"free": "{l}expires <= {clock} AND {l}waiting = '' AND {l}undone_until <= {clock}",
		// The lock's owner is this acquisition already: a reply was lost.
		"again": "({l}owner = {id})",
		// This acquisition was undone: there is a tombstone.
		"undone": "({l}undone_until > {clock} AND {instr}({l}undone, {mark}) > 0)",
		// Where the process is in the queue, counted from 1; 0 is not.
		"at":    "{instr}({l}waiting, {me})",
		"ahead": "(CASE WHEN {at} > 0 THEN {at} - 1 ELSE LENGTH({l}waiting) END)",
		// For how many µs a free lock is kept for those ahead in the queue, whose entries have 17
		// letters: half a second for each, and two at most, as hundreds may be dead by then.
		"kept": "{least}({ahead} * 30000, 2000000)",
		// The lock is free and it is this process's turn: since the lock became
		// free, those that are ahead have let their time go by. (If the clock has gone back
		// since the release, that must not make the lock look held. By less than 5 s it may
		// be a clock that was read before a wait for the row.)
		"turn": "({kept} <= CASE WHEN {l}owner <> '' OR {l}expires <= {clock} THEN {clock} - {l}expires" +
			" WHEN {l}expires > {clock} + 5000000 THEN 2000000 ELSE 0 END)",
		// How long it is until it could be, in µs.
		"left": "({l}expires + CASE WHEN {l}expires > {clock} THEN 0 ELSE {kept} END - {clock})",
		// A process that would wait is not in the queue, which has room.
		"absent": "({at} = 0 AND LENGTH({l}waiting) < 8000)", "joined": "{l}waiting || {me}",
	}
	if kinds {
		const at = "NOT EXISTS (SELECT 1 FROM {kinds} AS k WHERE k.name = # AND k.expires > {clock})"
		m["apart"], m["allapart"] = strings.Replace(at, "#", "{key}", 1), strings.Replace(at, "#", "a.column1", 1)
	}
	d.adapt(m)
	return m
}

// adapt has m, which are PostgreSQL's but for its functions on texts, be those of d.
func (d Dialect) adapt(m map[string]string) {
	switch d {
	case MySQL:
		m["l"], m["as"], m["conflict"] = "", "", "ON DUPLICATE KEY UPDATE"
		m["stamp"], m["commits"], m["returning"] = "LAST_INSERT_ID({instant})", "@@autocommit", ""
		m["committed"] = " AND @@autocommit" // else nothing is renewed
		m["told"], m["first"], m["joined"] = "LAST_INSERT_ID", "", "CONCAT(waiting, {me})"
		m["last16k"] = "RIGHT(CONCAT(CASE WHEN undone_until > {clock} THEN undone ELSE '' END, {mark}), 16000)"
	case Postgres:
		m["instr"] = "strpos"
		m["last16k"] = "right(CASE WHEN l.undone_until > {clock} THEN l.undone ELSE '' END || {mark}, 16000)"
	default:
		m["greatest"], m["least"] = "max", "min"
		// A value: this machine's clock in µs, from before the statement was sent. It is
		// the database's own, whose expression rounds it down, so that a lease that is read
		// from a record would be reckoned too long.
		delete(m, "instant")
		// A row that somebody deleted may have had tokens of this millisecond.
		m["initial"] = "max({clock}, {instant}) * 4"
		m["last16k"] = "substr(CASE WHEN l.undone_until > {clock} THEN l.undone ELSE '' END || {mark}, -16000)"
	}
}
