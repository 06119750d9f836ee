package sqllock

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
	"github.com/lockgen/lockgen/runtime/internal/record"
)

// listPage is how many rows one statement of Locks reads.
const listPage = 500

// listing is how the locks of a table are read: a row has the name first, and is no lock's
// where describe returns nil.
type listing struct {
	query    string
	describe func(rows *sql.Rows, name *[]byte) (*driver.LockInfo, error)
}

// listings returns those of the mutexes and of all other locks.
func (b *Backend) listings() []listing {
	all := []listing{{"SELECT l.name, l.owner, l.acquired, l.expires - {clock}, l.version, LENGTH(l.waiting) FROM {table} AS l " +
		"WHERE l.owner <> '' AND l.expires > {clock}", describeRow}}
	if b.Kinds() != 0 {
		all = append(all, listing{"SELECT l.name, l.value, l.written, {instant} FROM {kinds} AS l WHERE l.expires > {instant}", describeRecord})
	}
	return all
}

func describeRow(rows *sql.Rows, name *[]byte) (*driver.LockInfo, error) {
	var acquired, left, version, waiting int64
	h := driver.Holder{Client: record.Client}
	if err := rows.Scan(name, &h.ID, &acquired, &left, &version, &waiting); err != nil {
		return nil, err
	}
	h.Since, h.Left, h.Token = time.UnixMicro(acquired), time.Duration(left)*time.Microsecond, uint64(version)
	return &driver.LockInfo{Key: string(*name), Holders: []driver.Holder{h}, Waiters: int(waiting / entryLength)}, nil
}

func describeRecord(rows *sql.Rows, name *[]byte) (*driver.LockInfo, error) {
	var value string
	var written, now record.Time
	if err := rows.Scan(name, &value, &written, &now); err != nil || !record.IsRecord(value) {
		return nil, err
	}
	return record.Describe(string(*name), record.Resolve(value, written), now)
}

// page returns locks of a listing, which clause chooses by a key; and the last name that was
// read, if there may be more.
func (b *Backend) page(ctx context.Context, of listing, clause string, key []byte) (all []*driver.LockInfo, last []byte, err error) {
	v := values{"key": key, "instant": time.Now().UnixMicro()}
	s := b.sql.compile(of.query + clause + fmt.Sprintf(" LIMIT %d", listPage)).with(v)
	n := 0
	err = query(ctx, b.db, s, func(rows *sql.Rows) error {
		info, err := of.describe(rows, &last)
		if info != nil {
			all = append(all, info)
		}
		n++
		return err
	})
	if n < listPage {
		last = nil
	}
	return all, last, b.explained(err)
}

// Locks implements [driver.Inspector], in the order of the keys, first the mutexes and then
// all others.
func (b *Backend) Locks(ctx context.Context, pattern string) iter.Seq2[*driver.LockInfo, error] {
	return engine.List(func(yield func(*driver.LockInfo) bool) error {
		start := []byte(engine.Literal(pattern))
		for _, of := range b.listings() {
			for compare, last := ">=", start; last != nil && bytes.HasPrefix(last, start); compare = ">" {
				all, next, err := b.page(ctx, of, " AND l.name "+compare+" {key} ORDER BY l.name", last)
				if err != nil {
					return err
				}
				for _, info := range all {
					if engine.Match(pattern, info.Key) && !yield(info) {
						return nil
					}
				}
				last = next
			}
		}
		return nil
	})
}

// Lock implements [driver.Inspector].
func (b *Backend) Lock(ctx context.Context, key string) (info *driver.LockInfo, err error) {
	for _, of := range b.listings() {
		all, _, err := b.page(ctx, of, " AND l.name = {key}", []byte(key))
		switch {
		case err != nil:
			return nil, err
		case len(all) > 0:
			return all[0], nil
		}
	}
	return nil, nil
}

// Break implements [driver.Inspector]. Of Advisory and RowLock it frees the row alone: the
// database's own lock goes when the holder has heard of that.
func (b *Backend) Break(ctx context.Context, key, id string) error {
	found := false
	mayHaveRun, err := b.change(ctx, key, func(r *seen) error {
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
