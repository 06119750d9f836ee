package sqllock

import (
	"context"
	"fmt"
	"strings"
)

// rowsTable is the table whose rows strategy RowLock locks.
func (b *Backend) rowsTable() string { return b.table + "_rows" }

// tables names all that the strategy needs.
func (b *Backend) tables(and string) string {
	if b.strategy != RowLock {
		return "table " + b.table
	}
	return "table " + b.table + " " + and + " table " + b.rowsTable()
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
// The second, for strategy RowLock, has a row for each key to be locked. Rows of the
// first that are no longer needed are removed after a while. A process of strategy
// RowLock that removes one removes that of the second with it; others leave it.
func (b *Backend) DDL() string {
	var name, text, options string
	switch b.dialect {
	case MySQL:
		name, options = "VARBINARY(1024)", " ENGINE=InnoDB ROW_FORMAT=DYNAMIC"
		text = `
  owner VARBINARY(128) NOT NULL,
  acquired BIGINT NOT NULL,
  expires BIGINT NOT NULL,
  version BIGINT NOT NULL,
  waiting VARBINARY(8192) NOT NULL,
  undone VARBINARY(16384) NOT NULL,
  undone_until BIGINT NOT NULL
`
	case Postgres:
		// Room in each page keeps updates of a row within it.
		name, options = "bytea", " WITH (fillfactor = 50)"
		text = `
  owner text NOT NULL,
  acquired bigint NOT NULL,
  expires bigint NOT NULL,
  version bigint NOT NULL,
  waiting text NOT NULL,
  undone text NOT NULL,
  undone_until bigint NOT NULL
`
	default:
		name = "BLOB"
		text = `
  owner TEXT NOT NULL,
  acquired INTEGER NOT NULL,
  expires INTEGER NOT NULL,
  version INTEGER NOT NULL,
  waiting TEXT NOT NULL,
  undone TEXT NOT NULL,
  undone_until INTEGER NOT NULL
`
	}
	const create = "CREATE TABLE IF NOT EXISTS %s (\n  name %s NOT NULL PRIMARY KEY%s)%s;\n"
	ddl := fmt.Sprintf(create, b.dialect.quoted(b.table), name, ","+text, options)
	if b.strategy == RowLock {
		ddl += fmt.Sprintf(create, b.dialect.quoted(b.rowsTable()), name, "\n", options)
	}
	return ddl
}

// Migrate makes the tables unless they exist: it runs [Backend.DDL], for which
// the user needs the right to create tables. It may be called by many processes
// at once, and each time a service starts.
func (b *Backend) Migrate(ctx context.Context) error {
	for statementText := range strings.SplitSeq(strings.TrimSpace(b.DDL()), ";\n") {
		s := &statement{text: strings.TrimSuffix(statementText, ";")}
		for {
			_, _, err := b.run(ctx, pool{b.db}, s)
			if err == nil {
				break
			}
			// IF NOT EXISTS of two sessions at once: one finds the name taken.
			if c := code(err); b.dialect != Postgres || c != "23505" && c != "42P07" && c != "42710" {
				return fmt.Errorf("sqllock: migrate: %w\n\n%s", err, b.DDL())
			}
		}
	}
	return nil
}
