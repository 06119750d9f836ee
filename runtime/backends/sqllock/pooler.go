package sqllock

import (
	"context"
	"fmt"
	"time"
)

// sessionLooks is how many looks there are.
const sessionLooks = 3

// check looks, once, whether a session of ours is one of the server's, and not one
// that a pooler (PgBouncer in transaction mode) gives to each transaction anew: a
// lock of such a session belongs to whoever has it next. Two sessions must differ
// while one is in a transaction, and stay what they are. Others who use the pooler
// at that time may have it look so by chance: hence looks are several, and there
// are more once a lock is found in another session than it was taken in.
func (ss *sessions) check(ctx context.Context) error {
	select {
	case ss.checking <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", errNotSent, ctx.Err())
	}
	defer func() { <-ss.checking }()
	if ss.checked.Load() {
		return nil
	}
	err := ss.compare(ctx)
	ss.checked.Store(err == nil)
	return err
}

func (ss *sessions) compare(ctx context.Context) error {
	b := ss.backend
	one, err := ss.lend(ctx)
	if err != nil {
		return err
	}
	defer one.giveBack()
	before, err := b.sessionOf(ctx, one)
	if err != nil {
		return err
	}
	var two *session
	if b.db.Stats().MaxOpenConnections != 1 {
		// Not for long: the pool may have no second one to lend just now.
		soon, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if two, err = ss.lend(soon); err == nil {
			defer two.discard() // whatever state it is in
		}
	}
	for range sessionLooks {
		after, other, err := b.sessionsOf(ctx, one, two)
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

// sessionsOf returns the number of one, and of two in a transaction; that is 0 if there
// is no two.
func (b *Backend) sessionsOf(ctx context.Context, one, two *session) (ofOne, ofTwo int64, err error) {
	if two != nil {
		if err = b.end(ctx, two, "START TRANSACTION"); err != nil {
			return 0, 0, err
		}
		if ofTwo, err = b.sessionOf(ctx, two); err != nil {
			return 0, 0, err
		}
	}
	if ofOne, err = b.sessionOf(ctx, one); err == nil && two != nil {
		err = b.end(ctx, two, "ROLLBACK")
	}
	return ofOne, ofTwo, err
}

func (b *Backend) sessionOf(ctx context.Context, s *session) (int64, error) {
	r, _, err := b.run(ctx, s, &statement{text: "SELECT " + b.dialect.session(), columns: 1})
	if err != nil {
		return 0, err
	}
	return r.rows[0][0], nil
}
