package sqllock

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

const (
	// purgeEvery is how often a process that takes locks looks for rows that
	// nobody needs any more.
	purgeEvery = time.Minute
	// purgeIdle is how long such a row has not been used: longer than any
	// statement that read the clock before could still wait for the row, so that
	// the clock has passed its tokens for everybody.
	purgeIdle = 10 * time.Minute
	// leastIdle is the least that Purge takes: that of statements that are answered.
	// After one that is not, a tombstone keeps the row while it may yet arrive.
	leastIdle = attemptLimit + time.Second
	// purgeBatch is how many are removed at a time.
	purgeBatch = 500
)

// purgeNowAndThen purges beside, once a minute or so.
func (b *Backend) purgeNowAndThen() {
	now, last := int64(time.Since(started)), b.purged.Load()
	if last == 0 { // not at once: processes that start together part
		b.purged.CompareAndSwap(0, now-int64(rand.N(purgeEvery)))
		return
	}
	if now-last < int64(purgeEvery) || !b.purged.CompareAndSwap(last, now) {
		return
	}
	b.life.Go(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, purgeEvery) // a server that is silent keeps no goroutine
		defer cancel()
		_, _ = b.Purge(ctx, purgeIdle) // again in a minute
	})
}

// Purge removes the rows of locks that were not held for idle (four seconds at
// least), as the Backend does by itself for those of ten minutes. A row stays for
// as long as its tokens are not below what the clock would yield. It returns how
// many rows of locks it removed, of all kinds.
func (b *Backend) Purge(ctx context.Context, idle time.Duration) (removed int, err error) {
	if idle < leastIdle {
		return 0, fmt.Errorf("%w: Purge of rows idle for %v; it takes %v at least", driver.ErrInvalid, idle, leastIdle)
	}
	const unused = " l.expires < {clock} - {idle} AND l.undone_until < {clock} AND l.version < ({clock} - {idle}) * 4"
	removed, err = b.purge(ctx, "{table}", unused, idle)
	if err == nil && b.Kinds() != 0 {
		more := 0
		more, err = b.purge(ctx, "{kinds}", " l.expires < {clock} - {idle}", idle)
		removed += more
	}
	return removed, err
}

// purge removes rows of table that are unused, and returns how many.
func (b *Backend) purge(ctx context.Context, table, unused string, idle time.Duration) (removed int, err error) {
	find := b.dialect.compile("SELECT l.name FROM "+table+" AS l WHERE"+unused+fmt.Sprintf(" LIMIT %d", purgeBatch), b.sql.macros)
	for {
		var names [][]byte
		err := query(ctx, b.db, find.with(values{"idle": idle.Microseconds()}), func(rows *sql.Rows) error {
			names = append(names, nil)
			return rows.Scan(&names[len(names)-1])
		})
		if err != nil || len(names) == 0 {
			return removed, b.explained(err)
		}
		v := values{"idle": idle.Microseconds()}
		for i, name := range names {
			if b.strategy == RowLock {
				if err := b.sessions.raw.(*rowLock).drop(ctx, name); err != nil {
					return removed, err
				}
			}
			v[fmt.Sprint("key", i)] = name
		}
		// By key, so that no row is locked that stays; and they may be in use by now.
		from := "DELETE FROM " + table + " AS l"
		if b.dialect == MySQL {
			from = "DELETE l FROM " + table + " AS l"
		}
		drop := b.dialect.compile(from+" WHERE l.name IN ("+each(len(names), "{key#}", ", ")+") AND"+unused, b.sql.macros)
		r, _, err := b.run(ctx, b.pool, drop.with(v))
		if err != nil {
			return removed, err
		}
		removed += int(r.affected)
		if len(names) < purgeBatch || r.affected == 0 {
			return removed, nil
		}
	}
}
