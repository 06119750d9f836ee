package sqllock

import (
	"database/sql"
	"fmt"
	"maps"
	"strings"
	"sync"
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
	switch d {
	case MySQL:
		return "MySQL"
	case Postgres:
		return "PostgreSQL"
	case SQLite:
		return "SQLite"
	}
	return "unknown"
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

// statements are those that a Backend needs.
type statements struct {
	take                                           []*template // each is tried if the one before changed nothing
	refusal, look, release, undo, tombstone, raise *template
	swap, create, record                           *template // of other kinds of lock
	kill                                           *template // ends another session
	dialect                                        Dialect
	notify                                         bool              // what frees a lock calls the next in its queue
	now                                            map[string]string // macros
	ofBatches                                      sync.Map          // by batchID: the statements on several locks that were needed so far
}

// statements compiles the statements on table. With notify, what frees a lock also
// calls the next in its queue; with apart, nothing is taken beside another kind of lock.
func (d Dialect) statements(table string, notify, apart bool) *statements {
	s := &statements{dialect: d, notify: notify, now: d.macros(table)}
	if apart {
		const at = "NOT EXISTS (SELECT 1 FROM {kinds} AS k WHERE k.name = # AND k.expires > {clock})"
		s.now["apart"], s.now["allapart"] = strings.Replace(at, "#", "{key}", 1), strings.Replace(at, "#", "a.column1", 1)
	}
	of := func(file string, columns int) *template { return d.compile(source(file), s.now, columns) }
	s.look, s.refusal, s.raise, s.record = of("look.sql", 3), of("refusal.sql", 1), of("raise.sql", 0), of("record.sql", 4)
	s.record.hasText = true
	s.release, s.undo, s.tombstone = s.freeing("release.sql", s.now), s.freeing("undo.sql", s.now), s.freeing("tombstone.sql", s.now)
	if d == MySQL {
		s.kill = d.compile("KILL {session}", nil, 0)
		s.take = []*template{of("acquire_free.sql", 0), of("acquire_mysql.sql", 0)}
		s.swap, s.create = of("swap.sql", 0), of("create_mysql.sql", 0)
		return s
	}
	s.kill = d.compile("SELECT pg_terminate_backend({session}::int)::int", nil, 1)
	once := maps.Clone(s.now)
	once["now"] = "(excluded.expires - {ttl})"
	s.take = []*template{d.compile(source("acquire.sql"), once, 1)}
	if d == SQLite {
		s.take = []*template{of("acquire_free.sql", 1), s.take[0]}
	}
	swapping := func(file string) *template {
		if !notify {
			return of(file, 1)
		}
		return d.compile(strings.Replace(source("notify_granted.sql"), "{swap}", source(file), 1), s.now, 2)
	}
	s.swap, s.create = swapping("swap.sql"), swapping("create.sql")
	return s
}

// freeing returns the statement of a file that may free a lock.
func (s *statements) freeing(file string, macros map[string]string) *template {
	if !s.notify {
		return s.dialect.compile(source(file), macros, 0)
	}
	return s.dialect.compile(strings.Replace(source("notify.sql"), "{freeing}", source(file), 1), macros, 2)
}

// macros are the expressions that the .sql files name.
func (d Dialect) macros(table string) map[string]string {
	m := map[string]string{
		"now":     "{clock}", // but where one statement reads it once
		"table":   d.quoted(table),
		"kinds":   d.quoted(kindsTable(table)),
		"clock":   d.clock(),
		"channel": "'" + channel(table) + "'",

		// Of a record. {instant} is the clock for the times in it.
		"instant": "{clock}", "stamp": "{instant}", "commits": "1", "returning": " RETURNING written",
		"l": "l.", "as": " AS l", "conflict": "ON CONFLICT (name) DO UPDATE SET",
		"greatest": "greatest", "least": "least", "committed": "",

		// The first token of a new row.
		"initial": "{clock} * 4",
		// The first token of a new lease, and how a statement answers with it.
		"fresh": "{greatest}(version + 1, {now} * 4)", "first": " RETURNING version - {n} + 1",

		// No other kind of lock is at the key.
		"apart": "1 = 1", "allapart": "1 = 1",
		// The lock's owner is this acquisition already: a reply was lost.
		"again": "({l}owner = {id})",
		// This acquisition was undone: there is a tombstone.
		"undone": "({l}undone_until > {now} AND {undoneat} > 0)",
		"ahead":  "(CASE WHEN {at} > 0 THEN {at} - 1 ELSE LENGTH({l}waiting) END)",
		// For how many µs a free lock is kept for those ahead in the queue, whose entries have 17
		// letters: half a second for each, and two at most, as hundreds may be dead by then.
		"kept": "{least}({ahead} * 30000, 2000000)",
		// The lock is free and it is this process's turn: since the lock became
		// free, those that are ahead have let their time go by. (If the clock has gone back
		// since the release, that must not make the lock look held. By less than 5 s it may
		// be a clock that was read before a wait for the row.)
		"turn": "({kept} <= CASE WHEN {l}owner <> '' OR {l}expires <= {now} THEN {now} - {l}expires" +
			" WHEN {l}expires > {now} + 5000000 THEN 2000000 ELSE 0 END)",
		// How long it is until it could be, in µs.
		"left":    "({l}expires + CASE WHEN {l}expires > {now} THEN 0 ELSE {kept} END - {now})",
		"granted": "(NOT {undone} AND ({again} OR {turn}))",
		// The caller will wait and is not in the queue.
		"arrives": "({queue} = 1 AND {at} = 0 AND LENGTH({l}waiting) < 8000 AND NOT {undone})",
		// The queue behind this process; whoever was before it let its turn go by, or
		// comes again, last.
		"behind": "CASE WHEN {at} > 0 THEN SUBSTR({l}waiting, {at} + 17) ELSE '' END",
	}
	d.replaceIn(m)
	return m
}

// replaceIn puts into m what d says otherwise than the others.
func (d Dialect) replaceIn(m map[string]string) {
	switch d {
	case MySQL:
		m["l"], m["as"], m["conflict"] = "", "", "ON DUPLICATE KEY UPDATE"
		m["stamp"], m["commits"], m["returning"] = "LAST_INSERT_ID({instant})", "@@autocommit", ""
		m["committed"] = " AND @@autocommit" // else nothing is renewed
		m["fresh"], m["first"] = "LAST_INSERT_ID(GREATEST(version + 1, {now} * 4))", ""
		m["at"], m["undoneat"], m["leaverat"] = "LOCATE({me}, waiting)", "LOCATE({mark}, undone)", "LOCATE({leaver}, waiting)"
		m["last16k"] = "RIGHT(CONCAT(CASE WHEN undone_until > {clock} THEN undone ELSE '' END, {mark}), 16000)"
	case Postgres:
		m["at"], m["undoneat"], m["leaverat"] = "position({me} in l.waiting)", "position({mark} in l.undone)", "position({leaver} in l.waiting)"
		m["last16k"] = "right(CASE WHEN l.undone_until > {clock} THEN l.undone ELSE '' END || {mark}, 16000)"
	default:
		m["greatest"], m["least"] = "max", "min"
		// A value: this machine's clock in µs, from before the statement was sent. It is
		// the database's own, whose expression rounds it down, so that a lease that is read
		// from a record would be reckoned too long.
		delete(m, "instant")
		// A row that somebody deleted may have had tokens of this millisecond.
		m["initial"] = "max({clock}, {instant}) * 4"
		m["at"], m["undoneat"], m["leaverat"] = "instr(l.waiting, {me})", "instr(l.undone, {mark})", "instr(l.waiting, {leaver})"
		m["last16k"] = "substr(CASE WHEN l.undone_until > {clock} THEN l.undone ELSE '' END || {mark}, -16000)"
	}
}
