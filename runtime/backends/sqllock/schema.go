package sqllock

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// rowsTable is the table whose rows strategy RowLock locks.
func rowsTable(table string) string { return table + "_rows" }

// kindsTable is the table of the locks that are no mutexes.
func kindsTable(table string) string { return table + "_kinds" }

// tables names the tables that the strategy needs.
func (b *Backend) tables(and string) string {
	all := "table " + b.table
	switch {
	case b.strategy == RowLock:
		all += " " + and + " table " + rowsTable(b.table)
	case b.Kinds() != 0:
		all += " " + and + " table " + kindsTable(b.table)
	}
	return all
}

// DDL returns the statements that make the tables, each ending in a semicolon and
// a newline. The first table holds the locks:
//
//	name          the key, byte for byte
//	owner         the acquisition that holds it; empty if it was released
//	acquired      when, in µs since 1970 by the database's clock, as all times
//	expires       when the lease is over; of a free lock, when that was
//	version       the highest fencing token that is reserved or was used
//	waiting       the queue: numbers of the processes that wait, the longest first
//	undone        acquisitions that must take nothing, though they may yet arrive
//	undone_until  when the last of these can no longer arrive
//
// The second holds the locks that are no mutexes, for strategy Table and Advisory on PostgreSQL:
//
//	name          the key, byte for byte
//	version       that of the record, new with each write
//	value         the record: the version and a JSON object, in which "+n" stands for n µs
//	              after it was written, and "@n" for the fencing token of that time, and n
//	written       when that was
//	expires       when the record counts no more
//
// The third, for strategy RowLock, has a row for each key to be locked.
//
// The Backend removes rows that are no longer needed after a while. A process of strategy
// RowLock removes the row of its third table as well; others leave it.
func (b *Backend) DDL() string {
	types := map[Dialect][]string{ // name, owner, numbers, waiting, undone; options; records
		MySQL: {"VARBINARY(1024)", "VARBINARY(128)", "BIGINT", "VARBINARY(8192)", "VARBINARY(16384)", " ENGINE=InnoDB ROW_FORMAT=DYNAMIC", "MEDIUMBLOB"},
		// With room in each page, updates of a row stay in its page.
		Postgres: {"bytea", "text", "bigint", "text", "text", " WITH (fillfactor = 50)", "text"},
		SQLite:   {"BLOB", "TEXT", "INTEGER", "TEXT", "TEXT", "", "TEXT"},
	}[b.dialect]
	create := func(table string, columns ...string) string {
		ddl := createTable + b.dialect.quoted(table) + " (\n  name " + types[0] + " NOT NULL PRIMARY KEY"
		for i := 0; i < len(columns); i += 2 {
			ddl += ",\n  " + columns[i] + " " + columns[i+1] + " NOT NULL"
		}
		return ddl + "\n)" + types[5] + ";\n"
	}
	ddl := create(b.table, "owner", types[1], "acquired", types[2], "expires", types[2], "version", types[2],
		"waiting", types[3], "undone", types[4], "undone_until", types[2]) +
		create(kindsTable(b.table), "version", types[1], "value", types[6], "written", types[2], "expires", types[2])
	if b.strategy == RowLock {
		ddl += create(rowsTable(b.table))
	}
	return ddl
}

const createTable = "CREATE TABLE IF NOT EXISTS "

// Migrate makes the tables that the database does not find, by [Backend.DDL]; for that
// the user needs the right to create tables. It may be called by many processes at once,
// and each time a service starts.
func (b *Backend) Migrate(ctx context.Context) error {
	for statementText := range strings.SplitSeq(strings.TrimSpace(b.DDL()), ";\n") {
		s := &statement{text: strings.TrimSuffix(statementText, ";")}
		table, _, _ := strings.Cut(strings.TrimPrefix(s.text, createTable), " ")
		// IF NOT EXISTS would make a second one if the table is in a later schema of the search path.
		if _, _, err := b.run(ctx, &statement{text: "SELECT 1 FROM " + table + " WHERE 1 = 0"}); err == nil {
			continue
		}
		_, _, err := b.run(ctx, s)
		// If two sessions create the table at once, one finds the name taken until the other has committed.
		for range 10 {
			if c := errorCode(err); b.dialect != Postgres || c != "23505" && c != "42P07" && c != "42710" {
				break
			}
			_, _, err = b.run(ctx, s)
		}
		switch {
		case b.dialect.classify(err) == accessDenied: // another user may run it
			return fmt.Errorf("sqllock: migrate: %w\n\n%s", err, b.DDL())
		case err != nil:
			return fmt.Errorf("sqllock: migrate: %w", err)
		}
	}
	return nil
}

const (
	// purgeEvery is how often a process that takes locks looks for rows that
	// nobody needs any more.
	purgeEvery = time.Minute
	// purgeIdle is how long such a row has not been used: longer than any
	// statement that read the clock before could still wait for the row, so that
	// the clock has passed its tokens for everybody.
	purgeIdle = 10 * time.Minute
	// minIdle is the least that Purge takes: a statement that is answered takes no longer.
	// After one without an answer a tombstone keeps the row while it may yet arrive.
	minIdle = attemptLimit + time.Second
	// purgeBatch is how many are removed at a time.
	purgeBatch = 500
)

// purgeIfDue purges in the background, about once a minute.
func (b *Backend) purgeIfDue() {
	now, last := int64(time.Since(processStart)), b.lastPurge.Load()
	if last == 0 { // at a random time, so that processes that start together don't purge together
		b.lastPurge.CompareAndSwap(0, now-int64(rand.N(purgeEvery)))
		return
	}
	if now-last < int64(purgeEvery) || !b.lastPurge.CompareAndSwap(last, now) {
		return
	}
	b.life.Go(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, purgeEvery) // a server that is silent keeps no goroutine
		defer cancel()
		_, _ = b.Purge(ctx, purgeIdle) // again in a minute
	})
}

// Purge removes the rows of locks that were not held for idle (four seconds at
// least), as the Backend does by itself for those of ten minutes. A row stays for
// as long as its last token is not below what the clock would yield. It returns how
// many rows of locks it removed, of all kinds.
func (b *Backend) Purge(ctx context.Context, idle time.Duration) (removed int, err error) {
	if idle < minIdle {
		return 0, fmt.Errorf("%w: Purge of rows idle for %v; it takes %v at least", driver.ErrInvalid, idle, minIdle)
	}
	const unused = " l.expires < {clock} - {idle} AND l.undone_until < {clock} AND l.version < ({clock} - {idle}) * 4"
	removed, err = b.purge(ctx, "{table}", unused, idle)
	if err == nil && b.Kinds() != 0 {
		more := 0
		more, err = b.purge(ctx, "{kinds}", " l.expires < {clock} - {idle}", idle)
		removed += more
	}
	return removed, err
}

// purge removes rows of table that are unused, and returns how many.
func (b *Backend) purge(ctx context.Context, table, unused string, idle time.Duration) (removed int, err error) {
	find := "SELECT l.name FROM " + table + " AS l WHERE" + unused + fmt.Sprintf(" LIMIT %d", purgeBatch)
	for {
		v := values{"idle": idle.Microseconds()}
		found, err := b.scan(ctx, b.sql.statement(find, v))
		n := len(found.rows)
		if err != nil || n == 0 {
			return removed, err
		}
		for i, row := range found.rows {
			name := []byte(row[0])
			if b.strategy == RowLock {
				if err := (rowLock{b}).drop(ctx, b.sessions.newSession(), name); err != nil {
					return removed, err
				}
			}
			v[fmt.Sprint("key", i)] = name
		}
		// By key, so that no row that stays is locked; and by unused, because one may be in use by now.
		drop := b.dialect.compile("{delete} FROM "+table+" AS l WHERE l.name IN ({keys}) AND"+unused, b.sql.batchMacros(n))
		r, _, err := b.run(ctx, drop.bind(v))
		if err != nil {
			return removed, err
		}
		removed += int(r.affected)
		if n < purgeBatch || r.affected == 0 {
			return removed, nil
		}
	}
}
