package sqllock

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
	"github.com/lockgen/lockgen/runtime/internal/record"
)

// listPage is how many rows one statement of Locks reads.
const listPage = 500

// listing reads the locks of a table: the name is a row's first column, and describe returns nil
// for a row that is no lock's.
type listing struct {
	query    string
	describe func(found answer, row int) (*driver.LockInfo, error)
}

// listings returns the listings of the mutexes and of all other locks.
func (b *Backend) listings() []listing {
	all := []listing{{"SELECT l.name, l.owner, l.acquired, l.expires - {clock}, l.version, LENGTH(l.waiting) FROM {table} AS l " +
		"WHERE l.owner <> '' AND l.expires > {clock}", describeRow}}
	if b.Kinds() != 0 {
		all = append(all, listing{"SELECT l.name, l.value, l.written, {instant} FROM {kinds} AS l WHERE l.expires > {instant}", b.describeRecord})
	}
	return all
}

func describeRow(found answer, row int) (*driver.LockInfo, error) {
	h := driver.Holder{
		Client: record.Client, ID: found.rows[row][1], Since: time.UnixMicro(found.number(row, 2)),
		Left: time.Duration(found.number(row, 3)) * time.Microsecond, Token: uint64(found.number(row, 4)),
	}
	return &driver.LockInfo{Key: found.rows[row][0], Holders: []driver.Holder{h}, Waiters: int(found.number(row, 5) / queueEntryLength)}, nil
}

func (b *Backend) describeRecord(found answer, row int) (*driver.LockInfo, error) {
	name, value := found.rows[row][0], found.rows[row][1]
	if !record.IsRecord(value) {
		return nil, nil
	}
	return b.kinds.Describe(name, record.Resolve(value, record.Time(found.number(row, 2))), record.Time(found.number(row, 3)))
}

// page returns the locks of a listing that clause selects by key; and the last name that was
// read, if there may be more.
func (b *Backend) page(ctx context.Context, list listing, clause, key string) (all []*driver.LockInfo, last string, err error) {
	v := values{"key": []byte(key), "instant": time.Now().UnixMicro()}
	found, err := b.scan(ctx, b.sql.statement(list.query+clause+fmt.Sprintf(" LIMIT %d", listPage), v))
	if err != nil {
		return nil, "", err
	}
	for i := range found.rows {
		info, err := list.describe(found, i)
		switch {
		case err != nil:
			return nil, "", err
		case info != nil:
			all = append(all, info)
		}
	}
	if len(found.rows) == listPage {
		last = found.rows[listPage-1][0]
	}
	return all, last, nil
}

// scan runs s, which may read a whole table, on a connection of the pool.
func (b *Backend) scan(ctx context.Context, s *statement) (answer, error) {
	found, _, err := b.run(via(ctx, pool{b.db}, time.Minute), s)
	return found, err
}

// Locks implements [driver.Inspector], in the order of the keys, first the mutexes and then
// all others.
func (b *Backend) Locks(ctx context.Context, pattern string) iter.Seq2[*driver.LockInfo, error] {
	return engine.List(func(yield func(*driver.LockInfo) bool) error {
		start := engine.Literal(pattern)
		for _, list := range b.listings() {
			for compare, last, more := ">=", start, true; more; compare = ">" {
				all, next, err := b.page(ctx, list, " AND l.name "+compare+" {key} ORDER BY l.name", last)
				if err != nil {
					return err
				}
				for _, info := range all {
					if engine.Match(pattern, info.Key) && !yield(info) {
						return nil
					}
				}
				last, more = next, next != "" && strings.HasPrefix(next, start)
			}
		}
		return nil
	})
}

// Lock implements [driver.Inspector].
func (b *Backend) Lock(ctx context.Context, key string) (info *driver.LockInfo, err error) {
	for _, list := range b.listings() {
		all, _, err := b.page(ctx, list, " AND l.name = {key}", key)
		switch {
		case err != nil:
			return nil, err
		case len(all) > 0:
			return all[0], nil
		}
	}
	return nil, nil
}

// Break implements [driver.Inspector]. With Advisory and RowLock it frees only the row: the
// holder frees the database's own lock when it learns of that.
func (b *Backend) Break(ctx context.Context, key, id string) error {
	found := false
	mayHaveRun, err := b.updateRow(ctx, key, func(r *rowView) error {
		if found = r.isHeld(id); found {
			r.free()
		}
		return nil
	})
	if err != nil || found || mayHaveRun {
		return err
	}
	if b.Kinds() != 0 {
		err = b.kinds.Break(ctx, key, id)
	}
	if b.Kinds() == 0 || errors.Is(err, driver.ErrConflict) { // another's mutex
		err = fmt.Errorf("%w: %s does not hold %s", driver.ErrLost, id, key)
	}
	return err
}
