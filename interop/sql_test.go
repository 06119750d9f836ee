package interop

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"testing"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/lockgen/lockgen/internal/testserver"
	"github.com/lockgen/lockgen/runtime/backends/sqllock"
)

func TestPsql(t *testing.T) {
	addr := testserver.Postgres(t)
	host, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	db := openSQL(t, "pgx", "postgres://lockgen@"+addr+"/postgres?sslmode=disable")
	// The name of the lock, as the documentation of sqllock gives it.
	const number = `('x' || left(encode(sha256('%s'), 'hex'), 16))::bit(64)::bigint`
	p := &pair{
		peer: "psql, pg_advisory_lock",
		theirs: &terminal{
			dialog: startDialog(t, "psql", "-h", host, "-p", port, "-U", "lockgen", "-qtAX", "-v", "ON_ERROR_STOP=1", "postgres"),
			db:     db,
			take:   "SELECT 'locked' FROM (SELECT pg_advisory_lock(" + number + ")) AS taken;",
			look:   "SELECT CASE WHEN pg_try_advisory_lock(" + number + ") THEN 'locked' ELSE 'held' END;",
			free:   "SELECT CASE WHEN pg_advisory_unlock(" + number + ") THEN 'unlocked' ELSE 'error: not held' END;",
			queue:  "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted",
		},
		ours:     newAdvisory(t, db),
		sections: 1000,
	}
	p.test(t)
}

func TestMariaDB(t *testing.T) {
	addr := testserver.MySQL(t)
	host, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	_, err = openSQL(t, "mysql", "root@tcp("+addr+")/").Exec("CREATE DATABASE IF NOT EXISTS lockgen")
	require.NoError(t, err)
	db := openSQL(t, "mysql", "root@tcp("+addr+")/lockgen")
	// The name of the lock, as the documentation of sqllock gives it: a short, plain key is the name itself.
	const name = `(SELECT IF(k REGEXP BINARY '^[!-@\[-~]{1,64}$', k, CONCAT('lockgen:', LEFT(SHA2(k, 256), 40))) FROM (SELECT '%s' AS k) AS it)`
	p := &pair{
		peer: "mariadb, GET_LOCK",
		theirs: &terminal{
			dialog: startDialog(t, "mariadb", "-h", host, "-P", port, "-u", "root", "-N", "-B", "--unbuffered"),
			db:     db,
			take:   "SELECT IF(GET_LOCK(" + name + ", 60), 'locked', 'error: no lock');",
			look:   "SELECT IF(GET_LOCK(" + name + ", 0), 'locked', 'held');",
			free:   "SELECT IF(RELEASE_LOCK(" + name + "), 'unlocked', 'error: not held');",
			queue:  "SELECT count(*) FROM information_schema.processlist WHERE state = 'User lock'",
		},
		ours:     newAdvisory(t, db),
		sections: 1000,
	}
	p.test(t)
}

func openSQL(t *testing.T, driver, source string) *sql.DB {
	db, err := sql.Open(driver, source)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func newAdvisory(t *testing.T, db *sql.DB) *lockgen {
	b, err := sqllock.New(db, sqllock.Options{Strategy: sqllock.Advisory})
	require.NoError(t, err)
	require.NoError(t, b.Migrate(t.Context()))
	return newLockgen(t, b)
}

// terminal is a database's own command-line client, with one session. It reads statements.
type terminal struct {
	*dialog
	db                *sql.DB
	take, free, queue string
	look              string
	key               string
}

func (s *terminal) run(ctx context.Context, statement, name string) (answer string, err error) {
	if name != "" {
		if s.key, err = SectionRunKey(name); err != nil {
			return "", err
		}
	}
	return s.ask(ctx, fmt.Sprintf(statement, s.key))
}

func (s *terminal) lock(ctx context.Context, name string) error {
	_, err := s.run(ctx, s.take, name)
	return err
}

func (s *terminal) try(ctx context.Context, name string) (bool, error) {
	answer, err := s.run(ctx, s.look, name)
	return answer == "locked", err
}

func (s *terminal) unlock(ctx context.Context) error {
	_, err := s.run(ctx, s.free, "")
	return err
}

func (s *terminal) waits(ctx context.Context, _ string) (waiting bool, err error) {
	var n int
	err = s.db.QueryRowContext(ctx, s.queue).Scan(&n)
	return n > 0, err
}
