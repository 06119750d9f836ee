package sqllock

import (
	"context"
	"fmt"
	"time"
)

// checkPooler checks, once, that our sessions are the server's own, and not those of a pooler
// (PgBouncer in transaction mode), which gives each transaction another session. Two sessions must
// differ while one is in a transaction, and keep their numbers. A pooler may pass by chance, because
// of others' traffic. So it looks several times, and again after a lock was found in another session
// than it was taken in.
func (ss *sessions) checkPooler(ctx context.Context) error {
	leave, err := ss.checkTurns.Enter(ctx, struct{}{})
	if err != nil {
		return fmt.Errorf("%w: %w", errNotSent, err)
	}
	defer leave()
	if !ss.poolerChecked.Load() {
		err = ss.compareSessions(ctx)
		if err == nil && ss.backend.strategy == RowLock {
			err = ss.backend.checkTable(via(ctx, ss.backend.rowConns, 0)) // takes its connection before locks have them all
		}
		ss.poolerChecked.Store(err == nil)
	}
	return err
}

// compareSessions returns an error if one of our sessions changes while another is in a transaction:
// a pooler shares them.
func (ss *sessions) compareSessions(ctx context.Context) error {
	b := ss.backend
	one, two := ss.newSession(), ss.newSession()
	defer one.giveBack()
	defer two.discard() // whatever state it is in
	before, err := b.sessionNumber(ctx, one)
	if err != nil {
		return err
	}
	for look := range 3 {
		other := two.numberInTransaction(ctx)
		during, err := b.sessionNumber(ctx, one)
		if err == nil && other != 0 {
			err = two.exec(ctx, "ROLLBACK")
		}
		if err != nil {
			return err
		}
		after := during
		if look > 0 { // a pooler may now give it the session that the transaction had, as the last one used
			if after, err = b.sessionNumber(ctx, one); err != nil {
				return err
			}
		}
		if before != during || before == other || before != after {
			return fmt.Errorf("sqllock: strategy %v needs sessions of its own, and a pooler shares them (session %d became %d beside %d, and then %d): "+
				"connect to the server itself or in session mode, or use strategy Table", b.strategy, before, during, other, after)
		}
	}
	return nil
}

// numberInTransaction begins a transaction and returns the number of its session, or 0 after a
// second: the pool may have no connection to lend just now.
func (s *session) numberInTransaction(ctx context.Context) int64 {
	if s.backend.db.Stats().MaxOpenConnections == 1 {
		return 0
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if s.exec(ctx, "START TRANSACTION") != nil {
		return 0
	}
	number, _ := s.backend.sessionNumber(ctx, s)
	return number
}

// sessionNumber asks for the number of the session that a statement by from is in.
func (b *Backend) sessionNumber(ctx context.Context, from connector) (int64, error) {
	r, _, err := b.run(via(ctx, from, 0), b.sql.statement("SELECT {session}", nil))
	if err != nil {
		return 0, err
	}
	return r.number(0, 0), nil
}
