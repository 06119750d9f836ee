package sqllock

import (
	"context"
	"fmt"
	"strings"
)

// rowsTable is the table whose rows strategy RowLock locks.
func (b *Backend) rowsTable() string { return b.table + "_rows" }

// kindsTable is the table of the locks that are no mutexes.
func kindsTable(table string) string { return table + "_kinds" }

// tables names all that the strategy needs.
func (b *Backend) tables(and string) string {
	all := "table " + b.table
	switch {
	case b.strategy == RowLock:
		all += " " + and + " table " + b.rowsTable()
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
// Rows that are no longer needed are removed after a while. A process of strategy
// RowLock that removes one removes that of its third table with it; others leave it.
func (b *Backend) DDL() string {
	types := map[Dialect][]string{ // name, owner, numbers, waiting, undone; options; records
		MySQL: {"VARBINARY(1024)", "VARBINARY(128)", "BIGINT", "VARBINARY(8192)", "VARBINARY(16384)", " ENGINE=InnoDB ROW_FORMAT=DYNAMIC", "MEDIUMBLOB"},
		// Room in each page keeps updates of a row within it.
		Postgres: {"bytea", "text", "bigint", "text", "text", " WITH (fillfactor = 50)", "text"},
		SQLite:   {"BLOB", "TEXT", "INTEGER", "TEXT", "TEXT", "", "TEXT"},
	}[b.dialect]
	create := func(table string, columns ...string) string {
		ddl := "CREATE TABLE IF NOT EXISTS " + b.dialect.quoted(table) + " (\n  name " + types[0] + " NOT NULL PRIMARY KEY"
		for i := 0; i < len(columns); i += 2 {
			ddl += ",\n  " + columns[i] + " " + columns[i+1] + " NOT NULL"
		}
		return ddl + "\n)" + types[5] + ";\n"
	}
	ddl := create(b.table, "owner", types[1], "acquired", types[2], "expires", types[2], "version", types[2],
		"waiting", types[3], "undone", types[4], "undone_until", types[2]) +
		create(kindsTable(b.table), "version", types[1], "value", types[6], "written", types[2], "expires", types[2])
	if b.strategy == RowLock {
		ddl += create(b.rowsTable())
	}
	return ddl
}

// Migrate makes the tables unless they exist: it runs [Backend.DDL], for which
// the user needs the right to create tables. It may be called by many processes
// at once, and each time a service starts.
func (b *Backend) Migrate(ctx context.Context) error {
	for statementText := range strings.SplitSeq(strings.TrimSpace(b.DDL()), ";\n") {
		s := &statement{text: strings.TrimSuffix(statementText, ";")}
		_, _, err := b.run(ctx, b.pool, s)
		// IF NOT EXISTS of two sessions at once: one finds the name taken, until the other has committed.
		for range 10 {
			if c := code(err); b.dialect != Postgres || c != "23505" && c != "42P07" && c != "42710" {
				break
			}
			_, _, err = b.run(ctx, b.pool, s)
		}
		if err != nil {
			return fmt.Errorf("sqllock: migrate: %w\n\n%s", err, b.DDL())
		}
	}
	return nil
}
