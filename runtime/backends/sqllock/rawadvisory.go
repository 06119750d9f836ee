package sqllock

import (
	"context"

	"github.com/lockgen/lockgen/runtime/driver"
)

// advisory is the raw lock of strategy Advisory.
type advisory struct {
	exclusive advisoryLock
	shared    advisoryLock // on PostgreSQL alone
	leaving   *template    // has the shared lock in place of the exclusive one, likewise
	probing   *template
}

// advisoryLock are the statements about an advisory lock.
type advisoryLock struct{ trying, waiting, freeing *template }

func newAdvisory(b *Backend) *advisory {
	compile := b.sql.compile
	if b.dialect == MySQL {
		return &advisory{
			exclusive: advisoryLock{
				compile("SELECT COALESCE(GET_LOCK({name}, 0), 0), {session}"),
				compile("SELECT COALESCE(GET_LOCK({name}, {seconds}), 0)"),
				compile("SELECT COALESCE(RELEASE_LOCK({name}), 0)"),
			},
			probing: compile("SELECT COALESCE(IS_USED_LOCK({name}) = {session}, 0), {session}"),
		}
	}
	of := func(shared string) advisoryLock {
		return advisoryLock{
			compile("SELECT pg_try_advisory_lock" + shared + "({number})::int, {session}"),
			// What set_config sets holds for the statement alone.
			compile("SELECT CASE WHEN set_config('lock_timeout', '{seconds}s', true) <> '' THEN" +
				" (SELECT 1 FROM (SELECT pg_advisory_lock" + shared + "({number})) AS taken) END"),
			compile("SELECT pg_advisory_unlock" + shared + "({number})::int"),
		}
	}
	return &advisory{exclusive: of(""), shared: of("_shared"),
		// The server grants a session at once what is less than it holds, whoever waits.
		leaving: compile("SELECT pg_advisory_unlock({number})::int FROM (SELECT pg_advisory_lock_shared({number}) OFFSET 0) AS taken"),
		// The session is known by its number; nobody else uses it to unlock.
		probing: compile("SELECT 1, {session}")}
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
	r, _, err := s.run(ctx, l.of(s).trying.with(l.values(key)))
	if err != nil {
		return false, err
	}
	s.number = r.number(0, 1)
	return r.number(0, 0) == 1, nil
}

func (l *advisory) wait(ctx context.Context, s *session, key string) error {
	r, err := s.backend.attempt(standing(ctx, s), l.of(s).waiting.with(l.values(key)))
	if err == nil && r.number(0, 0) != 1 {
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
	r, _, err := s.run(ctx, t.with(l.values(key)))
	if err == nil && r.number(0, 0) != 1 {
		s.sessions.checked.Store(false) // the session may be another
		return driver.ErrLost
	}
	return err
}

func (l *advisory) probe(key string) *statement { return l.probing.with(l.values(key)) }
