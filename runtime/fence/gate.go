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

// Gate is a table with the highest token of each key. A row for each key stays in it; delete rows
// of keys that are never used again.
type Gate struct {
	table   string
	dialect Dialect
}

// NewGate returns a Gate in the table of that name, which [Gate.Migrate] makes. The name consists of
// letters, digits and underscores, with a schema and a dot before it if need be.
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

// Migrate makes the table where it is missing. It may be called by many processes at once. Programs
// that may not do so run the statement of [Gate.Schema] by other means.
func (g *Gate) Migrate(ctx context.Context, db *sql.DB) error {
	_, err := db.ExecContext(ctx, g.Schema())
	if err == nil {
		return nil
	}
	// On PostgreSQL it fails for one of two that make it at once, although it is there then.
	if _, missing := db.ExecContext(ctx, "SELECT name, token FROM "+g.table+" WHERE token < 0"); missing == nil {
		return nil
	}
	return fmt.Errorf("fence: make table %s: %w", g.table, err)
}

// Schema returns the statement that makes the table. Keys have at most 512 bytes on MySQL.
func (g *Gate) Schema() string {
	key := "text"
	if g.dialect == MySQL {
		key = "varbinary(512)" // compared byte by byte, as keys of locks are
	}
	return "CREATE TABLE IF NOT EXISTS " + g.table + " (name " + key + " PRIMARY KEY, token bigint NOT NULL)"
}

// Pass notes the token of the lock on key that ctx owns, and returns an error that wraps [ErrStale]
// if a higher one was noted before. It belongs into the transaction that writes, before its
// first write: the row of key stays locked until the transaction ends, so that no later
// holder can write between the comparison and the commit. If it fails, roll back. The errors of a ctx
// without the lock are those of [Token]. Pass sends one statement, on MySQL two, and waits for another
// transaction that has passed with the same key and not ended yet, as long as the database lets it.
func (g *Gate) Pass(ctx context.Context, tx *sql.Tx, key string) error {
	token, err := Token(ctx, key)
	if err != nil {
		return err
	}
	return g.Advance(ctx, tx, key, token)
}

// Advance is [Gate.Pass] for a token that came from elsewhere: with a request, or a message.
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

// raise writes token where it is the highest, and returns the highest.
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
