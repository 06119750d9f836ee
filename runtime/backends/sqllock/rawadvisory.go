package sqllock

import (
	"context"
	"strings"

	"github.com/lockgen/lockgen/runtime/driver"
)

// advisory is the raw lock of strategy Advisory: on PostgreSQL also shared.
type advisory struct{ backend *Backend }

// statement returns the database's statement on key. {shared} is the suffix of PostgreSQL's functions
// if s is shared.
func (l advisory) statement(s *session, key, mysql, postgres string) *statement {
	text, shared := mysql, ""
	if s.shared.Load() {
		shared = "_shared"
	}
	if l.backend.dialect == Postgres {
		text = strings.ReplaceAll(postgres, "{shared}", shared)
	}
	return l.backend.sql.statement(text, values{"name": MySQLName(key), "number": PostgresKey(key)})
}

func (l advisory) try(ctx context.Context, s *session, key string) (bool, error) {
	r, _, err := s.run(ctx, l.statement(s, key,
		"SELECT COALESCE(GET_LOCK({name}, 0), 0), {session}",
		"SELECT pg_try_advisory_lock{shared}({number})::int, {session}"))
	if err != nil {
		return false, err
	}
	s.number = r.number(0, 1)
	return r.number(0, 0) == 1, nil
}

func (l advisory) wait(ctx context.Context, s *session, key string) error {
	r, err := l.backend.attempt(viaWaiting(ctx, s), l.statement(s, key,
		"SELECT COALESCE(GET_LOCK({name}, {seconds}), 0)",
		// set_config sets it for this statement only.
		"SELECT CASE WHEN set_config('lock_timeout', '{seconds}s', true) <> '' THEN"+
			" (SELECT 1 FROM (SELECT pg_advisory_lock{shared}({number})) AS taken) END"))
	if err == nil && r.number(0, 0) != 1 {
		err = errSlow
	}
	return err
}

// downgrade makes s hold the lock shared instead of exclusively. No other session gets it in
// between: the server grants a session at once a weaker lock than it holds, even if others wait.
func (l advisory) downgrade(ctx context.Context, s *session, key string) error {
	err := l.unlock(ctx, s, key, "",
		"SELECT pg_advisory_unlock({number})::int FROM (SELECT pg_advisory_lock_shared({number}) OFFSET 0) AS taken")
	if err == nil {
		s.shared.Store(true)
	}
	return err
}

func (l advisory) free(ctx context.Context, s *session, key string) error {
	return l.unlock(ctx, s, key,
		"SELECT COALESCE(RELEASE_LOCK({name}), 0)",
		"SELECT pg_advisory_unlock{shared}({number})::int")
}

// unlock runs a statement that answers with 1 if it has unlocked something.
func (l advisory) unlock(ctx context.Context, s *session, key, mysql, postgres string) error {
	r, _, err := s.run(ctx, l.statement(s, key, mysql, postgres))
	if err == nil && r.number(0, 0) != 1 {
		s.sessions.poolerChecked.Store(false) // the session may be another
		return driver.ErrLost
	}
	return err
}

func (l advisory) probeStatement(s *session, key string) *statement {
	return l.statement(s, key,
		"SELECT COALESCE(IS_USED_LOCK({name}) = {session}, 0), {session}",
		"SELECT 1, {session}") // the same session holds the lock until we unlock it
}
