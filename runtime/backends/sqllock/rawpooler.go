package sqllock

import (
	"context"
	"fmt"
	"time"
)

// check looks, once, whether a session of ours is one of the server's, and not one
// that a pooler (PgBouncer in transaction mode) gives to each transaction anew. Two sessions
// must differ while one is in a transaction, and stay what they are. Others who use the pooler
// may have it look so by chance: hence looks are several, and there
// are more once a lock is found in another session than it was taken in.
func (ss *sessions) check(ctx context.Context) error {
	leave, err := ss.checking.Enter(ctx, struct{}{})
	if err != nil {
		return fmt.Errorf("%w: %w", errNotSent, err)
	}
	defer leave()
	if !ss.checked.Load() {
		if err = ss.compare(ctx); err == nil && ss.backend.strategy == RowLock {
			err = ss.backend.touch(by(ctx, ss.backend.rows, 0)) // has its connection before locks have them all
		}
		ss.checked.Store(err == nil)
	}
	return err
}

func (ss *sessions) compare(ctx context.Context) error {
	b := ss.backend
	one, two := ss.open(), ss.open()
	defer one.giveBack()
	defer two.discard() // whatever state it is in
	before, err := one.serverNumber(ctx)
	if err != nil {
		return err
	}
	most := b.db.Stats().MaxOpenConnections
	_, apart := b.renewals.(pool)
	lends := most == 0 || most > 2 || most == 2 && apart // a second one, beside that of renewals
	for look := range 3 {
		var other int64
		if lends {
			// Not for long: the pool may have no second one to lend just now.
			soon, cancel := context.WithTimeout(ctx, time.Second)
			if two.end(soon, "START TRANSACTION") == nil {
				other, _ = two.serverNumber(soon)
			}
			cancel()
		}
		beside, err := one.serverNumber(ctx)
		if err == nil && other != 0 {
			err = two.end(ctx, "ROLLBACK")
		}
		if err != nil {
			return err
		}
		after := beside
		if look > 0 { // a pooler that lends the last used first lends it what the transaction had
			if after, err = one.serverNumber(ctx); err != nil {
				return err
			}
		}
		if before != beside || before == other || before != after {
			return fmt.Errorf("sqllock: strategy %v needs sessions of its own, and a pooler shares them (session %d became %d beside %d, and then %d): "+
				"connect to the server itself or in session mode, or use strategy Table", b.strategy, before, beside, other, after)
		}
	}
	return nil
}

// serverNumber asks for the number of the session that a statement by s is in.
func (s *session) serverNumber(ctx context.Context) (int64, error) {
	r, _, err := s.run(ctx, s.backend.sql.one("SELECT {session}", nil))
	if err != nil {
		return 0, err
	}
	return r.number(0, 0), nil
}
