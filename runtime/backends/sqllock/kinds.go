package sqllock

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
	"github.com/lockgen/lockgen/runtime/internal/record"
)

// Locks that are no mutexes are records, in a table of their own. The database does not
// read a record: it compares its version, and keeps it as it was sent, with the marks in it
// that stand for the time of the write, beside that time. Whoever reads it puts the time in.
// So a write is one statement, whose time is the database's own.

// methods has a Backend call those that wait for a condition, and tell who leads.
type methods = record.Methods

// Kinds implements [driver.Kinded].
func (b *Backend) Kinds() driver.Kind {
	switch {
	case b.strategy == Advisory && b.dialect == Postgres:
		return driver.Read | driver.Write
	case b.strategy != Table:
		return 0
	}
	return record.AllKinds
}

// acquireKind is Acquire of what is no mutex.
func (b *Backend) acquireKind(ctx context.Context, a *driver.Acquisition) (driver.Lease, error) {
	if b.Kinds()&a.Mode.Kind == 0 {
		return nil, fmt.Errorf("%w: sqllock has no %v locks with strategy %v on %v; strategy Table has them",
			driver.ErrInvalid, a.Mode.Kind, b.strategy, b.dialect)
	}
	if b.sessions != nil {
		return b.sessions.acquire(ctx, a)
	}
	return b.kinds.Acquire(ctx, a)
}

// CompareAndSwap implements [driver.Agreement], for strategy Table.
func (b *Backend) CompareAndSwap(ctx context.Context, key, old, next string) (string, error) {
	if b.strategy != Table {
		return "", fmt.Errorf("%w: sqllock keeps values with strategy Table only", driver.ErrInvalid)
	}
	return b.kinds.CompareAndSwap(ctx, key, old, next)
}

// store is the Backend as the engine of its records.
type store struct{ *Backend }

// Swap implements [record.Store]. A write that changed nothing is followed by a look.
func (b store) Swap(ctx context.Context, w record.Write) (a record.Answer, err error) {
	if !w.Look {
		a, err = b.write(ctx, w)
	}
	if err == nil && !a.Done {
		mayHaveRun := a.MayHaveRun
		a, err = b.read(ctx, w.Key)
		a.MayHaveRun = mayHaveRun
		// It may have found its own work, of an attempt whose answer was lost.
		a.Done = err == nil && !w.Look && record.Version(a.Value) == record.Version(w.Value)
	}
	if a.Done {
		for _, id := range w.Granted {
			b.hub.Notify(id)
		}
		for _, id := range w.Wanted {
			b.Backend.kinds.Wanted(id)
		}
	}
	return a, err
}

// write does w if the record has the version that was seen.
func (b store) write(ctx context.Context, w record.Write) (a record.Answer, err error) {
	v := values{
		"key": []byte(w.Key), "seen": w.Seen, "version": record.Version(w.Value), "value": w.Value,
		"lasts": w.Lasts.Microseconds(), "instant": time.Now().UnixMicro(), "woken": strings.Join(w.Granted, " "),
	}
	file := "swap.sql"
	if w.Seen == "" {
		file = "create.sql"
	}
	r, unanswered, err := b.runKind(ctx, b.sql.one(file, v))
	a.MayHaveRun = unanswered
	if err != nil {
		return a, err
	}
	written := int64(0)
	switch {
	case len(r.rows) == 1:
		written = r.number(0, 0)
	case r.affected > 0: // of MySQL, with CLIENT_FOUND_ROWS also where nothing was changed
		written = r.insertID
	}
	if written >= leastToken {
		a.Done, a.Now, a.Value = true, record.Time(written), record.Resolve(w.Value, record.Time(written))
	}
	return a, nil
}

// read returns what is at key.
func (b store) read(ctx context.Context, key string) (a record.Answer, err error) {
	r, _, err := b.runKind(ctx, b.sql.recordAt(key, ""))
	if err != nil {
		return a, err
	}
	a.Now, a.Value = record.Time(r.number(0, 0)), recordOf(r)
	switch {
	case r.number(0, 3) == 0:
		return record.Answer{}, errManual
	case r.number(0, 2) == 1 && a.Value == "":
		return record.Answer{}, record.InsteadOf(record.Mutex)
	}
	return a, nil
}

// recordAt is a look at the record of key, which is left out if it has the version seen.
func (s *statements) recordAt(key, seen string) *statement {
	return s.one("record.sql", values{"key": []byte(key), "seen": seen, "instant": time.Now().UnixMicro()})
}

// recordOf returns the record that record.sql has answered with, or "".
func recordOf(said answer) string {
	return record.Resolve(said.rows[0][4], record.Time(said.number(0, 1)))
}

// watchRecord is the [record.Watch] of a database that can tell nobody: it looks again and
// again, ever more seldom.
func (b *Backend) watchRecord(ctx context.Context, key string, ready func(), tell func(value string) int) error {
	ready()
	for since, seen := time.Now(), ""; engine.Pause(ctx, max(lookAfter(time.Since(since), 0), lookKinds)); {
		r, err := b.attempt(ctx, pool{b.db}, b.sql.recordAt(key, seen))
		if err != nil {
			continue
		}
		if value := recordOf(r); value != "" && record.Version(value) != seen {
			since, seen = time.Now(), record.Version(value)
			tell(value)
		}
	}
	return ctx.Err()
}

// way is on what connection statements about a record go that do not go by the pool, and
// how long an attempt waits for its answer. A context holds it.
type way struct {
	connector
	limit time.Duration
}

type wayKey struct{}

func by(ctx context.Context, from connector, limit time.Duration) context.Context {
	return context.WithValue(ctx, wayKey{}, way{from, limit})
}

// runKind runs s, on the connection that ctx holds or one of the pool.
func (b store) runKind(ctx context.Context, s *statement) (answer, bool, error) {
	if w, ok := ctx.Value(wayKey{}).(way); ok {
		s.limit = w.limit
		return b.run(ctx, w.connector, s)
	}
	return b.run(ctx, b.pool, s)
}

// beside is the answer to who asked for a mutex where another kind of lock is at the key.
func (b *Backend) beside(ctx context.Context, key string) error {
	a, err := store{b}.read(ctx, key)
	switch {
	case err != nil:
		return err
	case a.Value == "": // it has gone since
		return errMoved
	}
	return record.Beside(record.Noun(a.Value), record.Mutex)
}
