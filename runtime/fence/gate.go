package fence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
)

// Dialect is the SQL that a database speaks.
type Dialect int

// The dialects that a [Gate] speaks.
const (
	PostgreSQL Dialect = iota + 1
	MySQL              // and MariaDB
	SQLite
)

// Gate is a table with the highest token of each key. It keeps a row for each key. Delete the rows
// of keys that are never used again.
type Gate struct {
	table   string
	dialect Dialect
}

// NewGate returns a Gate that uses the table of that name. [Gate.Migrate] creates the table. The name
// consists of letters, digits and underscores; a schema and a dot may stand before it.
func NewGate(dialect Dialect, table string) (*Gate, error) {
	if dialect < PostgreSQL || dialect > SQLite {
		return nil, fmt.Errorf("fence: dialect %d: use fence.PostgreSQL, fence.MySQL or fence.SQLite", dialect)
	}
	for name := range strings.SplitSeq(table, ".") {
		if name == "" || strings.ContainsFunc(name, func(r rune) bool {
			return r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
		}) {
			return nil, fmt.Errorf("fence: table %q: a name consists of letters, digits and underscores", table)
		}
	}
	return &Gate{table: table, dialect: dialect}, nil
}

// Migrate creates the table if it does not exist. Many processes may call it at once. If the program has
// no right to create tables, run the statement of [Gate.Schema] by other means.
func (g *Gate) Migrate(ctx context.Context, db *sql.DB) error {
	_, err := db.ExecContext(ctx, g.Schema())
	if err == nil {
		return nil
	}
	// On PostgreSQL it may fail if another process creates the table at the same time.
	if _, missing := db.ExecContext(ctx, "SELECT name, token FROM "+g.table+" WHERE token < 0"); missing == nil {
		return nil
	}
	return fmt.Errorf("fence: make table %s: %w", g.table, err)
}

// Schema returns the statement that creates the table. Keys have at most 512 bytes on MySQL.
func (g *Gate) Schema() string {
	key := "text"
	if g.dialect == MySQL {
		key = "varbinary(512)" // compared byte by byte, as keys of locks are
	}
	return "CREATE TABLE IF NOT EXISTS " + g.table + " (name " + key + " PRIMARY KEY, token bigint NOT NULL)"
}

// Pass stores the token of the lock on key that ctx owns. It returns an error that wraps [ErrStale]
// if a higher token was stored before. Call it in the transaction that writes, before the first
// write: the row of key stays locked until the transaction ends, so no later holder can write
// between the comparison and the commit. If Pass fails, roll back. If ctx does not own the lock, the
// errors are those of [Token]. Pass sends one statement, on MySQL two. If another transaction has
// called Pass with the same key and has not ended, it waits, for as long as the database allows.
func (g *Gate) Pass(ctx context.Context, tx *sql.Tx, key string) error {
	token, err := Token(ctx, key)
	if err != nil {
		return err
	}
	return g.Advance(ctx, tx, key, token)
}

// Advance is [Gate.Pass] for a token that came with a request or a message.
func (g *Gate) Advance(ctx context.Context, tx *sql.Tx, key string, token int64) error {
	if key == "" || token <= 0 {
		return fmt.Errorf("fence: key %q, token %d: a key is not empty and a token is above 0", key, token)
	}
	newest, err := g.raise(ctx, tx, key, token)
	switch {
	case err != nil:
		return fmt.Errorf("fence: note the token of %q in %s: %w", key, g.table, err)
	case newest > token:
		return stale(key, token, newest)
	}
	return nil
}

// raise stores token if it is the highest, and returns the highest.
func (g *Gate) raise(ctx context.Context, tx *sql.Tx, key string, token int64) (newest int64, err error) {
	switch g.dialect {
	case MySQL:
		// A read without FOR UPDATE would see the snapshot of the transaction, which may be older.
		if _, err = tx.ExecContext(ctx, "INSERT INTO "+g.table+" (name, token) VALUES (?, ?) "+
			"ON DUPLICATE KEY UPDATE token = GREATEST(token, VALUES(token))", key, token); err == nil {
			err = tx.QueryRowContext(ctx, "SELECT token FROM "+g.table+" WHERE name = ? FOR UPDATE", key).Scan(&newest)
		}
	case PostgreSQL:
		err = tx.QueryRowContext(ctx, "INSERT INTO "+g.table+" AS g (name, token) VALUES ($1, $2) "+
			"ON CONFLICT (name) DO UPDATE SET token = GREATEST(g.token, excluded.token) RETURNING token", key, token).Scan(&newest)
	case SQLite:
		err = tx.QueryRowContext(ctx, "INSERT INTO "+g.table+" (name, token) VALUES (?, ?) "+
			"ON CONFLICT (name) DO UPDATE SET token = max(token, excluded.token) RETURNING token", key, token).Scan(&newest)
	default:
		err = errors.New("the Gate was not made by NewGate")
	}
	return newest, err
}
