package sqllock

import (
	"context"
	"fmt"
	"time"
)

// sessionLooks is how many looks there are.
const sessionLooks = 3

// check looks, once, whether a session of ours is one of the server's, and not one
// that a pooler (PgBouncer in transaction mode) gives to each transaction anew. Two sessions
// must differ while one is in a transaction, and stay what they are. Others who use the pooler
// may have it look so by chance: hence looks are several, and there
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
	one, two := ss.open(), ss.open()
	defer one.giveBack()
	defer two.discard() // whatever state it is in
	before, err := b.sessionOf(ctx, one)
	if err != nil {
		return err
	}
	for look := range sessionLooks {
		var other int64
		if b.db.Stats().MaxOpenConnections != 1 {
			// Not for long: the pool may have no second one to lend just now.
			soon, cancel := context.WithTimeout(ctx, time.Second)
			if b.end(soon, two, "START TRANSACTION") == nil {
				other, _ = b.sessionOf(soon, two)
			}
			cancel()
		}
		beside, err := b.sessionOf(ctx, one)
		if err == nil && other != 0 {
			err = b.end(ctx, two, "ROLLBACK")
		}
		if err != nil {
			return err
		}
		after := beside
		if look > 0 { // a pooler that lends the last used first lends it what the transaction had
			if after, err = b.sessionOf(ctx, one); err != nil {
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

func (b *Backend) sessionOf(ctx context.Context, s *session) (int64, error) {
	r, _, err := b.run(ctx, s, &statement{text: "SELECT " + b.dialect.session()})
	if err != nil {
		return 0, err
	}
	return r.number(0, 0), nil
}
