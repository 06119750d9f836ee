package sqllock

import (
	"context"
	"errors"
	"fmt"
)

// rowLock is the raw lock of strategy RowLock: a row, locked by a transaction
// that stays open.
type rowLock struct{ backend *Backend }

const lockRow = "SELECT 1, {session} FROM {rows} WHERE name = {key} FOR UPDATE"

// statement returns the statement text about the row of key.
func (l rowLock) statement(text string, key []byte) *statement {
	return l.backend.sql.statement(text, values{"key": key})
}

// lock locks the row of key by s, in a transaction. It reports false if there is none.
func (l rowLock) lock(ctx context.Context, s *session, key []byte, waits bool) (bool, error) {
	if err := s.begin(ctx, waits); err != nil {
		return false, err
	}
	ctx, text := via(ctx, s, 0), lockRow+" NOWAIT"
	if waits {
		ctx, text = viaWaiting(ctx, s), lockRow
	}
	r, err := l.backend.attempt(ctx, l.statement(text, key))
	if err != nil || len(r.rows) != 1 {
		return false, err
	}
	s.number = r.number(0, 1)
	return true, nil
}

func (l rowLock) try(ctx context.Context, s *session, key string) (bool, error) {
	b := l.backend
	for range 3 {
		got, err := l.lock(ctx, s, []byte(key), false)
		switch {
		case got:
			return true, nil
		case err != nil && s.gone():
			return false, b.explained(err)
		}
		if err := s.exec(ctx, "ROLLBACK"); err != nil {
			return false, err
		}
		if err != nil {
			// MariaDB answers for a locked row with the error of a wait that took too long.
			if class := b.dialect.classify(err); class == rowLocked || class == transient {
				return false, nil
			}
			return false, b.explained(err)
		}
		// The row does not exist. An INSERT of an existing row would wait for the transaction
		// that has it locked.
		if _, _, err := s.run(ctx, l.statement("{insert} INTO {rows} (name) VALUES ({key}){unlessthere}", []byte(key))); err != nil {
			return false, err
		}
	}
	return false, fmt.Errorf("the row of %q in %s comes and goes", key, rowsTable(b.table))
}

func (l rowLock) wait(ctx context.Context, s *session, key string) error {
	got, err := l.lock(ctx, s, []byte(key), true)
	if err == nil && !got {
		err = errors.New("the row that was waited for is gone")
	}
	return err
}

// free commits, because the lease's row was released in the transaction.
func (l rowLock) free(ctx context.Context, s *session, _ string) error {
	return s.exec(ctx, "COMMIT")
}

func (l rowLock) probeStatement(_ *session, key string) *statement {
	return l.statement(lockRow+" NOWAIT", []byte(key))
}

// drop removes the row by s, unless somebody has it locked, and closes s.
func (l rowLock) drop(ctx context.Context, s *session, name []byte) error {
	end := "ROLLBACK"
	var err error
	if got, _ := l.lock(ctx, s, name, false); got {
		if _, _, err = s.run(ctx, l.statement("DELETE FROM {rows} WHERE name = {key}", name)); err == nil {
			end = "COMMIT"
		}
	}
	if ended := s.exec(ctx, end); ended != nil {
		s.discard() // it may be in a transaction, which the pool would not end
		return ended
	}
	s.giveBack()
	return err
}

// begin starts a transaction. If it waits, PostgreSQL ends the wait after serverWaitLimit. It is READ
// COMMITTED, because under MySQL's REPEATABLE READ a lock on a row can become one on the gap beside
// it, where nobody could insert a row; and the release of a row must see what was committed since.
func (s *session) begin(ctx context.Context, waits bool) error {
	texts := []string{"SET TRANSACTION ISOLATION LEVEL READ COMMITTED", "START TRANSACTION"}
	if s.backend.dialect == Postgres {
		texts = []string{"START TRANSACTION ISOLATION LEVEL READ COMMITTED"}
		if waits {
			texts = append(texts, fmt.Sprintf("SET LOCAL lock_timeout = %d", serverWaitLimit.Milliseconds()))
		}
	}
	for _, text := range texts {
		if err := s.exec(ctx, text); err != nil {
			return err
		}
	}
	return nil
}
