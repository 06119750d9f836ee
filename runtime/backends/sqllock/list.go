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

// queueEntry is how long the number of a process is in the queue of a row.
const queueEntry = 17

const (
	selectRows = "SELECT l.name, l.owner, l.acquired, l.expires - {clock}, l.version, LENGTH(l.waiting) FROM {table} AS l " +
		"WHERE l.owner <> '' AND l.expires > {clock}"
	selectKinds = "SELECT l.name, l.value, l.written, {instant} FROM {kinds} AS l WHERE l.expires > {instant}"
)

// Locks implements [driver.Inspector], in the order of the keys, first the mutexes and then
// all others.
func (b *Backend) Locks(ctx context.Context, pattern string) iter.Seq2[*driver.LockInfo, error] {
	return func(yield func(*driver.LockInfo, error) bool) {
		for _, read := range []func(context.Context, string, []byte, func(*driver.LockInfo) bool) (int, []byte, error){b.readRows, b.readKinds} {
			last := []byte(engine.Literal(pattern))
			clause := " AND l.name >= {key} ORDER BY l.name"
			for {
				going := true
				n, end, err := read(ctx, clause, last, func(info *driver.LockInfo) bool {
					if engine.Match(pattern, info.Key) {
						going = yield(info, nil)
					}
					return going
				})
				if err != nil {
					yield(nil, err)
					return
				}
				if !going {
					return
				}
				if n < listPage || !bytes.HasPrefix(end, []byte(engine.Literal(pattern))) {
					break
				}
				clause, last = " AND l.name > {key} ORDER BY l.name", end
			}
		}
	}
}

// readRows reads a page of mutexes; clause chooses them by a key. It returns how many rows
// it has read, and the last one's key.
func (b *Backend) readRows(ctx context.Context, clause string, key []byte, tell func(*driver.LockInfo) bool) (n int, last []byte, err error) {
	s := b.dialect.compile(selectRows+clause+limit(), b.sql.now, 0).with(values{"key": key})
	return b.page(ctx, s, tell, func(rows *sql.Rows) (*driver.LockInfo, []byte, error) {
		var name []byte
		var acquired, left, version, waiting int64
		h := driver.Holder{Client: record.Client}
		if err := rows.Scan(&name, &h.ID, &acquired, &left, &version, &waiting); err != nil {
			return nil, nil, err
		}
		h.Since, h.Left, h.Token = time.UnixMicro(acquired), time.Duration(left)*time.Microsecond, uint64(version)
		return &driver.LockInfo{Key: string(name), Holders: []driver.Holder{h}, Waiters: int(waiting / queueEntry)}, name, nil
	})
}

// readKinds reads a page of locks that are no mutexes, likewise.
func (b *Backend) readKinds(ctx context.Context, clause string, key []byte, tell func(*driver.LockInfo) bool) (n int, last []byte, err error) {
	s := b.dialect.compile(selectKinds+clause+limit(), b.sql.now, 0).with(values{"key": key, "instant": time.Now().UnixMicro()})
	n, last, err = b.page(ctx, s, tell, func(rows *sql.Rows) (*driver.LockInfo, []byte, error) {
		var name []byte
		var value string
		var written, now record.Time
		if err := rows.Scan(&name, &value, &written, &now); err != nil || !record.IsRecord(value) {
			return nil, name, err
		}
		info, err := record.Describe(string(name), record.Resolve(value, written), now)
		return info, name, err
	})
	if err != nil && b.Kinds() == 0 && (b.dialect.judge(err) == missing || b.dialect.judge(err) == denied) {
		return 0, nil, nil // there need be no such table
	}
	return n, last, err
}

func limit() string { return fmt.Sprintf(" LIMIT %d", listPage) }

func (b *Backend) page(ctx context.Context, s *statement, tell func(*driver.LockInfo) bool, scan func(*sql.Rows) (*driver.LockInfo, []byte, error)) (n int, last []byte, err error) {
	rows, err := b.db.QueryContext(ctx, s.text, s.args...)
	if err != nil {
		return 0, nil, b.explained(err)
	}
	defer rows.Close()
	for rows.Next() {
		info, name, err := scan(rows)
		if err != nil {
			return n, last, err
		}
		n, last = n+1, bytes.Clone(name)
		if info != nil && !tell(info) {
			return n, last, nil
		}
	}
	return n, last, rows.Err()
}

// Lock implements [driver.Inspector].
func (b *Backend) Lock(ctx context.Context, key string) (info *driver.LockInfo, err error) {
	note := func(found *driver.LockInfo) bool {
		info = found
		return true
	}
	if _, _, err = b.readRows(ctx, " AND l.name = {key}", []byte(key), note); err == nil && info == nil {
		_, _, err = b.readKinds(ctx, " AND l.name = {key}", []byte(key), note)
	}
	return info, err
}

// Break implements [driver.Inspector]. Of Advisory and RowLock it frees the row alone: the
// database's own lock goes when the holder has heard of that.
func (b *Backend) Break(ctx context.Context, key, id string) error {
	free := b.dialect.compile("UPDATE {table} AS l SET expires = {clock}, owner = '' "+
		"WHERE l.name = {key} AND l.owner = {id} AND l.expires > {clock}", b.sql.now, 0)
	r, unanswered, err := b.run(ctx, b.pool, free.with(values{"key": []byte(key), "id": id}))
	if err != nil || r.affected > 0 || unanswered {
		return err
	}
	err = b.kinds.Break(ctx, key, id)
	if errors.Is(err, driver.ErrConflict) { // another's mutex
		err = fmt.Errorf("%w: %s does not hold %s", driver.ErrLost, id, key)
	}
	return err
}
