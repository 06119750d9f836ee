package sqllock

import (
	"context"
	"fmt"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// session is the expression for the server's number of a session.
func (d Dialect) session() string {
	if d == MySQL {
		return "CONNECTION_ID()"
	}
	return "pg_backend_pid()"
}

// advisory is the raw lock of strategy Advisory.
type advisory struct {
	backend                  *Backend
	taking, freeing, probing *template
}

func newAdvisory(b *Backend) *advisory {
	d := b.dialect
	compile := func(text string, columns int) *template {
		return d.compile(text, map[string]string{"session": d.session()}, columns)
	}
	if d == MySQL {
		return &advisory{b,
			compile("SELECT COALESCE(GET_LOCK({name}, 0), 0), {session}", 2),
			compile("SELECT COALESCE(RELEASE_LOCK({name}), 0)", 1),
			compile("SELECT COALESCE(IS_USED_LOCK({name}) = {session}, 0), {session}", 2)}
	}
	return &advisory{b,
		compile("SELECT pg_try_advisory_lock({number})::int, {session}", 2),
		compile("SELECT pg_advisory_unlock({number})::int", 1),
		// The session is known by its number; nobody else uses it to unlock.
		compile("SELECT 1, {session}", 2)}
}

func (l *advisory) values(key string) values {
	return values{"name": MySQLName(key), "number": PostgresKey(key)}
}

func (l *advisory) take(ctx context.Context, p *pin, key string) (bool, error) {
	r, _, err := l.backend.run(ctx, p, l.taking.with(l.values(key)))
	if err != nil {
		return false, err
	}
	p.session = r.rows[0][1]
	return r.rows[0][0] == 1, nil
}

func (l *advisory) free(ctx context.Context, p *pin, key string) error {
	r, _, err := l.backend.run(ctx, p, l.freeing.with(l.values(key)))
	if err == nil && r.rows[0][0] != 1 {
		l.backend.pins.checked.Store(false) // the session may be another
		return driver.ErrLost
	}
	return err
}

func (l *advisory) probe(key string) *statement { return l.probing.with(l.values(key)) }

// rowLock is the raw lock of strategy RowLock: a row, locked by a transaction
// that stays open.
type rowLock struct {
	backend                   *Backend
	locking, making, dropping *template
	begin, rollback           statement
	isolate                   *statement // the transaction that is about to begin
}

func newRowLock(b *Backend) *rowLock {
	d := b.dialect
	macros := map[string]string{"rows": d.quoted(b.rowsTable()), "session": d.session()}
	making := "INSERT INTO {rows} (name) VALUES ({key}) ON CONFLICT (name) DO NOTHING"
	if d == MySQL {
		making = "INSERT IGNORE INTO {rows} (name) VALUES ({key})"
	}
	var isolate *statement
	if d == MySQL {
		// For one transaction only: the connection's own setting is its pool's. Under
		// REPEATABLE READ a lock on a row becomes one on the gap beside when the page is
		// split, and nobody could make a row there for as long as the lock is held.
		isolate = &statement{text: "SET TRANSACTION ISOLATION LEVEL READ COMMITTED"}
	}
	return &rowLock{
		isolate:  isolate,
		backend:  b,
		locking:  d.compile("SELECT 1, {session} FROM {rows} WHERE name = {key} FOR UPDATE NOWAIT", macros, 2),
		making:   d.compile(making, macros, 0),
		dropping: d.compile("DELETE FROM {rows} WHERE name = {key}", macros, 0),
		begin:    statement{text: "START TRANSACTION"},
		rollback: statement{text: "ROLLBACK"},
	}
}

func (l *rowLock) take(ctx context.Context, p *pin, key string) (bool, error) {
	b := l.backend
	v := values{"key": []byte(key)}
	for range 3 {
		if l.isolate != nil {
			if _, _, err := b.run(ctx, p, l.isolate); err != nil {
				return false, err
			}
		}
		if _, _, err := b.run(ctx, p, &l.begin); err != nil {
			return false, err
		}
		r, err := b.attempt(ctx, p, l.locking.with(v))
		if err == nil && len(r.rows) == 1 {
			p.session = r.rows[0][1]
			return true, nil
		}
		if _, _, err := b.run(ctx, p, &l.rollback); err != nil {
			return false, err
		}
		if err != nil {
			return false, b.locked(err)
		}
		// The row is not there. To insert one that is would wait for whoever
		// has it locked.
		if _, _, err := b.run(ctx, p, l.making.with(v)); err != nil {
			return false, err
		}
	}
	return false, fmt.Errorf("the row of %q in %s comes and goes", key, b.rowsTable())
}

// locked returns nil if err says that another transaction has the row. MariaDB
// says so by the number for a wait that took too long.
func (b *Backend) locked(err error) error {
	if k := b.dialect.judge(err); k == taken || k == passing {
		return nil
	}
	return b.explained(err)
}

func (l *rowLock) free(ctx context.Context, p *pin, _ string) error {
	_, _, err := l.backend.run(ctx, p, &l.rollback)
	return err
}

func (l *rowLock) probe(key string) *statement { return l.locking.with(values{"key": []byte(key)}) }

// check looks, once, whether a session of ours is one of the server's, and not one
// that a pooler (PgBouncer in transaction mode) gives to each transaction anew: a
// lock of such a session belongs to whoever has it next. Two sessions must differ
// while one is in a transaction, and stay what they are. Others who use the pooler
// at that time may have it look so by chance: hence looks are several, and there
// are more once a lock is found in another session than it was taken in.
func (ps *pins) check(ctx context.Context) error {
	select {
	case ps.checking <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", errNotSent, ctx.Err())
	}
	defer func() { <-ps.checking }()
	if ps.checked.Load() {
		return nil
	}
	err := ps.compare(ctx)
	ps.checked.Store(err == nil)
	return err
}

// sessionLooks is how many looks there are.
const sessionLooks = 3

func (ps *pins) compare(ctx context.Context) error {
	b := ps.backend
	one, err := ps.lend(ctx)
	if err != nil {
		return err
	}
	defer one.giveBack()
	before, err := b.sessionOf(ctx, one)
	if err != nil {
		return err
	}
	var two *pin
	if b.db.Stats().MaxOpenConnections != 1 {
		// Not for long: the pool may have no second one to lend just now.
		soon, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if two, err = ps.lend(soon); err == nil {
			defer two.discard() // whatever state it is in
		}
	}
	for range sessionLooks {
		after, other, err := b.sessions(ctx, one, two)
		if err != nil {
			return err
		}
		if before != after || before == other {
			return fmt.Errorf("sqllock: strategy %v needs sessions of its own, and a pooler shares them (session %d became %d beside %d): "+
				"connect to the server itself or in session mode, or use strategy Table", b.strategy, before, after, other)
		}
	}
	return nil
}

// sessions returns those of one, and of two in a transaction; that is 0 if there is
// no two.
func (b *Backend) sessions(ctx context.Context, one, two *pin) (ofOne, ofTwo int64, err error) {
	if two == nil {
		ofOne, err = b.sessionOf(ctx, one)
		return ofOne, 0, err
	}
	if _, _, err = b.run(ctx, two, &statement{text: "START TRANSACTION"}); err != nil {
		return 0, 0, err
	}
	if ofTwo, err = b.sessionOf(ctx, two); err != nil {
		return 0, 0, err
	}
	if ofOne, err = b.sessionOf(ctx, one); err != nil {
		return 0, 0, err
	}
	_, _, err = b.run(ctx, two, &statement{text: "ROLLBACK"})
	return ofOne, ofTwo, err
}

func (b *Backend) sessionOf(ctx context.Context, p *pin) (int64, error) {
	r, _, err := b.run(ctx, p, &statement{text: "SELECT " + b.dialect.session(), columns: 1})
	if err != nil {
		return 0, err
	}
	return r.rows[0][0], nil
}
