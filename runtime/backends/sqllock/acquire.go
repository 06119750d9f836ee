package sqllock

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/record"
)

// A lock that is plainly free is taken by one statement, on MySQL and SQLite by the second
// where its row is new. All else begins with a look:
//
//	undone    an error: another attempt left a tombstone
//	free      its turn: taken by turn.sql, unless somebody was faster, which is a new look
//	apart     held, and the process is to join the queue, unless it is its turn by then: a new look
//	held      held
//
// An attempt that has no answer is undone by Undo, which leaves a tombstone.
const (
	free = iota
	undone
	held
	apart // held, and the process is not in the queue, though it may be
)

// seen is what a look finds.
type seen struct {
	state, ahead, version int64
	left                  time.Duration // until it could be free
}

// takeTries is how often a lock that is free at a look is taken by another before it can be.
const takeTries = 8

// takeRow takes the lock's row. It returns a *driver.HeldError if another has it.
func (b *Backend) takeRow(ctx context.Context, from connector, a *driver.Acquisition) (driver.Lease, error) {
	v := b.acquireValues(a)
	anew, turn := b.sql.of("acquire_all", 1), b.sql.of("turn", 0)
	steps := []*template{anew}
	switch {
	case b.hub.Waits(address(a.Key, a.ID)): // and was called
		steps[0] = turn
	case b.dialect != Postgres:
		steps = []*template{b.sql.of("free", 0), anew}
	}
	for try := range takeTries {
		for _, t := range steps {
			r, unanswered, err := b.run(ctx, from, t.with(v))
			a.MayHaveRun = a.MayHaveRun || unanswered
			if err != nil {
				return nil, b.whichTable(ctx, from, err)
			}
			if first := r.firstToken(a.Tokens); first >= leastToken {
				return b.newLease(a, first, r.sent), nil
			}
		}
		l, err := b.look(ctx, from, v)
		if err == nil && l.state == apart && a.Queue && b.sessions == nil { // else the server's queue is the only one
			joined, unanswered, failed := b.run(ctx, from, b.sql.of("join", 0).with(v))
			a.MayHaveRun = a.MayHaveRun || unanswered
			if err = failed; err == nil && joined.affected == 0 {
				l.state = free
			}
		}
		switch {
		case err != nil: // soon again: it was not taken
			return nil, &driver.HeldError{RetryAfter: time.Millisecond} //nolint:nilerr // it would be told to be unavailable
		case l.state == undone:
			return nil, errors.New("the acquisition was undone already")
		case l.state != free:
			return nil, &driver.HeldError{RetryAfter: l.left}
		case try > 0:
			if err := b.whyNot(ctx, from, a.Key); err != nil {
				return nil, err
			}
		}
		steps = []*template{turn, anew}
	}
	return nil, &driver.HeldError{RetryAfter: time.Millisecond}
}

func (b *Backend) acquireValues(a *driver.Acquisition) values {
	key := []byte(a.Key)
	return values{
		"key": key, "id": a.ID, "key0": key, "id0": a.ID, "me": entry(a.ID), "mark": mark(a.ID),
		"ttl": b.dialect.term(a.TTL), "n": int64(a.Tokens), "instant": time.Now().UnixMicro(),
	}
}

// firstToken is that of the one lock that a statement took; far less if it took none.
func (a answer) firstToken(n uint64) uint64 {
	if len(a.rows) == 1 {
		return uint64(a.rows[0][1]) - n + 1
	}
	return uint64(a.insertID)
}

// look asks what the lock of v is.
func (b *Backend) look(ctx context.Context, from connector, v values) (seen, error) {
	r, _, err := b.run(ctx, from, b.sql.of("look", 0).with(v))
	return seenBy(r), err
}

// seenBy is what look.sql was answered with. A row that is not there is free.
func seenBy(r answer) seen {
	if len(r.rows) == 0 {
		return seen{}
	}
	row := r.rows[0]
	return seen{state: row[0], left: time.Duration(row[1]) * time.Microsecond, ahead: row[2] / entryLength, version: row[3]}
}

// whyNot returns why no statement takes a lock that is free: another kind of lock is at the
// key, or was a moment ago, or what it took could be rolled back. It returns nil if there is
// no such reason.
func (b *Backend) whyNot(ctx context.Context, from connector, key string) error {
	if err := b.commits(ctx, from); err != nil || b.Kinds() == 0 {
		return err
	}
	if a, err := (store{b}).read(ctx, key); err == nil && a.Value != "" {
		return record.Beside(record.Noun(a.Value), record.Mutex)
	}
	return nil
}

// commits returns an error if connections do not commit by themselves.
func (b *Backend) commits(ctx context.Context, from connector) error {
	if b.dialect != MySQL {
		return nil
	}
	r, _, err := b.run(ctx, from, &statement{text: "SELECT @@autocommit"})
	if err == nil && r.rows[0][0] == 0 {
		err = errManual
	}
	return err
}

// whichTable returns err, or where that says that a table is missing, which one.
func (b *Backend) whichTable(ctx context.Context, from connector, err error) error {
	if b.dialect.judge(err) == missing {
		return cmp.Or(b.touch(ctx, from), err)
	}
	return err
}
