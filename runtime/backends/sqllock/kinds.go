package sqllock

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
	"github.com/lockgen/lockgen/runtime/internal/record"
)

// Locks that are no mutexes are records, in a table of their own. The database does not
// read a record: it compares its version, and stores it as it was sent, and the time of the
// write in another column. Marks in the record stand for that time, and whoever reads it
// replaces them. So a write is one statement, whose time is the database's own.

// methods are those that need records only: they call the waiters of a condition, tell who leads,
// and keep values.
type methods = record.Register

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

// CompareAndSwap implements [driver.Agreement], for strategy Table.
func (b *Backend) CompareAndSwap(ctx context.Context, key, old, next string) (string, error) {
	if b.strategy != Table {
		return "", fmt.Errorf("%w: sqllock keeps values with strategy Table only", driver.ErrInvalid)
	}
	return b.methods.CompareAndSwap(ctx, key, old, next)
}

// store is the Backend as the engine of its records.
type store struct{ *Backend }

// Swap implements [record.Store]. It looks after a write that changed nothing.
func (b store) Swap(ctx context.Context, w record.Write) (a record.Answer, err error) {
	if !w.Look {
		a, err = b.write(ctx, w)
	}
	if err == nil && !a.Done {
		mayHaveRun := a.MayHaveRun
		a, err = b.read(ctx, w.Key)
		a.MayHaveRun = mayHaveRun
	}
	if a.Done {
		for _, id := range w.Granted {
			b.hub.Notify(id)
		}
	}
	return a, err
}

// write replaces the record if it has the version that was seen.
func (b store) write(ctx context.Context, w record.Write) (a record.Answer, err error) {
	v := values{
		"key": []byte(w.Key), "seen": w.Seen, "version": record.Version(w.Value), "value": ascii(w.Value),
		"lasts": w.Lasts.Microseconds(), "instant": time.Now().UnixMicro(), "woken": strings.Join(w.Granted, " "),
	}
	file := "swap.sql"
	if w.Seen == "" {
		file = "create.sql"
	}
	r, unanswered, err := b.run(ctx, b.sql.statement(file, v))
	a.MayHaveRun = unanswered
	if err != nil {
		return a, err
	}
	if written := r.returned(); written >= minToken {
		a.Done, a.Now, a.Value = true, record.Time(written), record.Resolve(w.Value, record.Time(written))
	}
	return a, nil
}

// read returns what is at key.
func (b store) read(ctx context.Context, key string) (a record.Answer, err error) {
	r, _, err := b.run(ctx, b.sql.recordAt(key, ""))
	if err != nil {
		return a, err
	}
	a.Now, a.Value = record.Time(r.number(0, 0)), recordOf(r)
	switch {
	case r.number(0, 3) == 0:
		return record.Answer{}, errAutocommitOff
	case r.number(0, 2) == 1 && a.Value == "":
		return record.Answer{}, record.InsteadOf(record.Mutex)
	}
	return a, nil
}

// recordAt reads the record of key. It answers without the record if that has the version seen.
func (s *statements) recordAt(key, seen string) *statement {
	return s.statement("record.sql", values{"key": []byte(key), "seen": seen, "instant": time.Now().UnixMicro()})
}

// recordOf returns the record that record.sql has answered with, or "".
func recordOf(reply answer) string {
	return record.Resolve(reply.rows[0][4], record.Time(reply.number(0, 1)))
}

// watchRecord is the [record.Watch] of a database without notifications: it polls, ever more seldom.
func (b *Backend) watchRecord(ctx context.Context, key string, ready func(), tell func(value string) int) error {
	ready()
	for since, seen := time.Now(), ""; engine.Pause(ctx, max(pollAfter(time.Since(since), 0), pollRecordFirst)); {
		r, err := b.attempt(via(ctx, b.pollConns, 0), b.sql.recordAt(key, seen))
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

// otherKindError is the error of an acquire of a mutex where another kind of lock is at the key.
func (b *Backend) otherKindError(ctx context.Context, key string) error {
	a, err := store{b}.read(ctx, key)
	switch {
	case err != nil:
		return err
	case a.Value == "": // it was released since
		return errRowChanged
	}
	return record.Beside(record.Noun(a.Value), record.Mutex)
}

// noteKey is the name of the row, in the table of kinds, where the note of this name is: a
// version, which is always the same, and its text in base64, which is no record of a lock.
func noteKey(name string) string { return "lockgen:" + strings.Replace(name, "/", ":", 1) }

// PutNote implements [driver.Noter]. Without strategy Table there is no table for it.
func (b *Backend) PutNote(ctx context.Context, name, text string, ttl time.Duration) error {
	if b.strategy != Table {
		return errors.ErrUnsupported
	}
	sum := sha256.Sum256([]byte(name))
	version := hex.EncodeToString(sum[:8])
	w := record.Write{Key: noteKey(name), Seen: version, Value: version + " " + base64.StdEncoding.EncodeToString([]byte(text)), Lasts: max(ttl, 0)}
	a, err := store{b}.write(ctx, w)
	if err == nil && !a.Done && ttl > 0 {
		w.Seen = "" // there is none
		_, err = store{b}.write(ctx, w)
	}
	return err
}

// Note implements [driver.Noter].
func (b *Backend) Note(ctx context.Context, name string) (string, error) {
	if b.strategy != Table {
		return "", nil
	}
	a, err := store{b}.read(ctx, noteKey(name))
	if err != nil {
		return "", err
	}
	_, encoded, _ := strings.Cut(a.Value, " ")
	text, err := base64.StdEncoding.DecodeString(encoded)
	return string(text), err
}
