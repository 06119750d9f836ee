package sqllock

import (
	"context"
	"fmt"
	"time"
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

// kill returns the statement that ends another session.
func (d Dialect) kill(session int64) *statement {
	if d == MySQL {
		return &statement{text: fmt.Sprint("KILL ", session)}
	}
	return &statement{text: fmt.Sprintf("SELECT pg_terminate_backend(%d)::int", session)}
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
