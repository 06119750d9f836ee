package sqllock

import (
	"context"
	"fmt"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// rawLock is a lock of the database's own, which a session holds, and which foreign
// clients know: shared with others, of a session that reads.
type rawLock interface {
	// try takes key for s if it is free, and does not wait.
	try(ctx context.Context, s *session, key string) (bool, error)
	// wait takes key for s, in the server's queue. It returns an error after standFor.
	wait(ctx context.Context, s *session, key string) error
	// free ends that. It returns driver.ErrLost if the session did not hold it.
	free(ctx context.Context, s *session, key string) error
	// probe returns the statement that answers with 1, and the number of the
	// session, if that still holds key.
	probe(key string) *statement
}

// standFor is how long the server keeps a session in its queue. InnoDB goes by
// innodb_lock_wait_timeout, which is 50 s unless it was set.
const standFor = 50 * time.Second

// standing is s as a statement that waits in the server's queue.
func standing(s *statement) *statement {
	s.limit = standFor + attemptLimit
	return s
}

// session is the expression for the server's number of a session.
func (d Dialect) session() string {
	if d == MySQL {
		return "CONNECTION_ID()"
	}
	return "pg_backend_pid()"
}

// begin starts a transaction, which on PostgreSQL waits for standFor if it waits. Under MySQL's
// REPEATABLE READ a lock on a row can become one on the gap beside it, where nobody could make
// a row then; and the release of a row must see what was committed since.
func (b *Backend) begin(ctx context.Context, s *session, waits bool) error {
	texts := []string{"SET TRANSACTION ISOLATION LEVEL READ COMMITTED", "START TRANSACTION"}
	if b.dialect == Postgres {
		texts = []string{"START TRANSACTION ISOLATION LEVEL READ COMMITTED"}
		if waits {
			texts = append(texts, fmt.Sprintf("SET LOCAL lock_timeout = %d", standFor.Milliseconds()))
		}
	}
	for _, text := range texts {
		if err := b.end(ctx, s, text); err != nil {
			return err
		}
	}
	return nil
}

func (b *Backend) end(ctx context.Context, s *session, how string) error {
	_, _, err := b.run(ctx, s, &statement{text: how})
	return err
}

// advisory is the raw lock of strategy Advisory.
type advisory struct {
	backend   *Backend
	exclusive advisoryLock
	shared    advisoryLock // on PostgreSQL alone
	leaving   *template    // has the shared lock in place of the exclusive one, likewise
	probing   *template
}

// advisoryLock are the statements about an advisory lock.
type advisoryLock struct{ trying, waiting, freeing *template }

func newAdvisory(b *Backend) *advisory {
	d := b.dialect
	compile := func(text string, columns int) *template {
		return d.compile(text, map[string]string{"session": d.session(), "seconds": fmt.Sprint(standFor.Seconds())}, columns)
	}
	if d == MySQL {
		return &advisory{backend: b,
			exclusive: advisoryLock{
				compile("SELECT COALESCE(GET_LOCK({name}, 0), 0), {session}", 2),
				compile("SELECT COALESCE(GET_LOCK({name}, {seconds}), 0)", 1),
				compile("SELECT COALESCE(RELEASE_LOCK({name}), 0)", 1),
			},
			probing: compile("SELECT COALESCE(IS_USED_LOCK({name}) = {session}, 0), {session}", 2),
		}
	}
	of := func(shared string) advisoryLock {
		return advisoryLock{
			compile("SELECT pg_try_advisory_lock"+shared+"({number})::int, {session}", 2),
			// What set_config sets holds for the statement alone.
			compile("SELECT CASE WHEN set_config('lock_timeout', '{seconds}s', true) <> '' THEN"+
				" (SELECT 1 FROM (SELECT pg_advisory_lock"+shared+"({number})) AS taken) END", 1),
			compile("SELECT pg_advisory_unlock"+shared+"({number})::int", 1),
		}
	}
	return &advisory{backend: b, exclusive: of(""), shared: of("_shared"),
		// The server grants a session at once what is less than it holds, whoever waits.
		leaving: compile("SELECT pg_advisory_unlock({number})::int FROM (SELECT pg_advisory_lock_shared({number}) OFFSET 0) AS taken", 1),
		// The session is known by its number; nobody else uses it to unlock.
		probing: compile("SELECT 1, {session}", 2)}
}

// of returns the lock that s is for.
func (l *advisory) of(s *session) *advisoryLock {
	if s.reads.Load() {
		return &l.shared
	}
	return &l.exclusive
}

func (l *advisory) values(key string) values {
	return values{"name": MySQLName(key), "number": PostgresKey(key)}
}

func (l *advisory) try(ctx context.Context, s *session, key string) (bool, error) {
	r, _, err := l.backend.run(ctx, s, l.of(s).trying.with(l.values(key)))
	if err != nil {
		return false, err
	}
	s.number = r.rows[0][1]
	return r.rows[0][0] == 1, nil
}

func (l *advisory) wait(ctx context.Context, s *session, key string) error {
	r, err := l.backend.attempt(ctx, s, standing(l.of(s).waiting.with(l.values(key))))
	if err == nil && r.rows[0][0] != 1 {
		err = errSlow
	}
	return err
}

// downgrade has s hold the lock shared, which it held alone. No other session gets it
// between.
func (l *advisory) downgrade(ctx context.Context, s *session, key string) error {
	err := l.unlock(ctx, s, l.leaving, key)
	if err == nil {
		s.reads.Store(true)
	}
	return err
}

func (l *advisory) free(ctx context.Context, s *session, key string) error {
	return l.unlock(ctx, s, l.of(s).freeing, key)
}

// unlock runs t, which answers with 1 if it has unlocked something.
func (l *advisory) unlock(ctx context.Context, s *session, t *template, key string) error {
	r, _, err := l.backend.run(ctx, s, t.with(l.values(key)))
	if err == nil && r.rows[0][0] != 1 {
		l.backend.sessions.checked.Store(false) // the session may be another
		return driver.ErrLost
	}
	return err
}

func (l *advisory) probe(key string) *statement { return l.probing.with(l.values(key)) }

// rowLock is the raw lock of strategy RowLock: a row, locked by a transaction
// that stays open.
type rowLock struct {
	backend                            *Backend
	locking, waiting, making, dropping *template
}

func newRowLock(b *Backend) *rowLock {
	d := b.dialect
	macros := map[string]string{"rows": d.quoted(b.rowsTable()), "session": d.session()}
	making := "INSERT INTO {rows} (name) VALUES ({key}) ON CONFLICT (name) DO NOTHING"
	if d == MySQL {
		making = "INSERT IGNORE INTO {rows} (name) VALUES ({key})"
	}
	const locking = "SELECT 1, {session} FROM {rows} WHERE name = {key} FOR UPDATE"
	return &rowLock{
		backend:  b,
		locking:  d.compile(locking+" NOWAIT", macros, 2),
		waiting:  d.compile(locking, macros, 2),
		making:   d.compile(making, macros, 0),
		dropping: d.compile("DELETE FROM {rows} WHERE name = {key}", macros, 0),
	}
}

// lock locks the row of key by s, in a transaction. It reports false if there is none.
func (l *rowLock) lock(ctx context.Context, s *session, key []byte, waits bool) (bool, error) {
	if err := l.backend.begin(ctx, s, waits); err != nil {
		return false, err
	}
	locking := l.locking.with(values{"key": key})
	if waits {
		locking = standing(l.waiting.with(values{"key": key}))
	}
	r, err := l.backend.attempt(ctx, s, locking)
	if err != nil || len(r.rows) != 1 {
		return false, err
	}
	s.number = r.rows[0][1]
	return true, nil
}

func (l *rowLock) try(ctx context.Context, s *session, key string) (bool, error) {
	b := l.backend
	for range 3 {
		got, err := l.lock(ctx, s, []byte(key), false)
		switch {
		case got:
			return true, nil
		case err != nil && s.gone():
			return false, b.explained(err)
		}
		if err := b.end(ctx, s, "ROLLBACK"); err != nil {
			return false, err
		}
		if err != nil {
			// MariaDB says that another has the row by the number for a wait that took too long.
			if k := b.dialect.judge(err); k == taken || k == passing {
				return false, nil
			}
			return false, b.explained(err)
		}
		// The row is not there. To insert one that is would wait for whoever
		// has it locked.
		if _, _, err := b.run(ctx, s, l.making.with(values{"key": []byte(key)})); err != nil {
			return false, err
		}
	}
	return false, fmt.Errorf("the row of %q in %s comes and goes", key, b.rowsTable())
}

func (l *rowLock) wait(ctx context.Context, s *session, key string) error {
	got, err := l.lock(ctx, s, []byte(key), true)
	if err == nil && !got {
		err = errNoRow
	}
	return err
}

// free commits, because the lease's row was released in the transaction.
func (l *rowLock) free(ctx context.Context, s *session, _ string) error {
	return l.backend.end(ctx, s, "COMMIT")
}

func (l *rowLock) probe(key string) *statement {
	return l.locking.with(values{"key": []byte(key)})
}

// drop removes the row, unless somebody has it locked.
func (l *rowLock) drop(ctx context.Context, name []byte) error {
	b := l.backend
	s, end := b.sessions.open(), "ROLLBACK"
	var err error
	if got, _ := l.lock(ctx, s, name, false); got {
		if _, _, err = b.run(ctx, s, l.dropping.with(values{"key": name})); err == nil {
			end = "COMMIT"
		}
	}
	if ended := b.end(ctx, s, end); ended != nil {
		s.discard() // it may be in a transaction, which the pool would not end
		return ended
	}
	s.giveBack()
	return err
}
