package sqllock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// A mutex of strategy Table is taken by takeRow, and freed by its lease (lease.go). DESIGN.md tells the steps.

// takeRow takes the row of a mutex. It returns a *driver.HeldError if another has it.
func (b *Backend) takeRow(ctx context.Context, a *driver.Acquisition) (driver.Lease, error) {
	item := &acquireItem{Acquisition: a}
	waits := b.hub.Waits(waiterID(a.Key, a.ID))
	if waits || b.dialect != Postgres { // elsewhere an INSERT takes up to twice as long if the row exists
		b.takeExisting(ctx, item)
	}
	if item.lease == nil && item.err == nil && !waits {
		b.takeFree(ctx, []*acquireItem{item})
	}
	if item.lease != nil || item.err != nil {
		return item.lease, b.missingTable(ctx, item.err)
	}
	return b.takeAfterLook(ctx, a)
}

// takeExisting takes a row that exists, without a look at it, if it is free and its queue is empty or
// has the process first.
func (b *Backend) takeExisting(ctx context.Context, item *acquireItem) {
	r, unanswered, err := b.run(ctx, b.sql.statement("take_one.sql", values{
		"key": []byte(item.Key), "id": item.ID, "me": queueEntry(item.ID), "ttl": b.dialect.leaseMicros(item.TTL), "n": int64(item.Tokens),
		"instant": time.Now().UnixMicro(),
	}))
	item.MayHaveRun, item.err = item.MayHaveRun || unanswered, err
	if version := r.returned(); err == nil && version >= minToken {
		item.lease = b.newLease(item.Acquisition, version, r.sent)
	}
}

// takeAfterLook looks at the row, and takes it, or a place in its queue.
func (b *Backend) takeAfterLook(ctx context.Context, a *driver.Acquisition) (driver.Lease, error) {
	me, term := queueEntry(a.ID), b.dialect.leaseMicros(a.TTL)
	var r *rowView
	var held error
	mayHaveRun, err := b.updateRow(ctx, a.Key, func(found *rowView) error {
		r, held = found, nil
		switch {
		case r.otherKind:
			return b.otherKindError(ctx, a.Key)
		case r.isUndone(a.ID):
			return errors.New("the acquisition was undone already")
		case r.isHeld(a.ID): // a reply was lost
			r.expires = max(r.expires, r.now+term)
			return nil
		case r.isTurn(me):
			r.take(a, term)
			return nil
		}
		held = r.heldError(me)
		if a.Queue && !strings.Contains(r.waiting, me) && len(r.waiting) < maxQueue {
			r.waiting += me
		}
		return nil
	})
	a.MayHaveRun = a.MayHaveRun || mayHaveRun
	switch {
	case errors.Is(err, errRowChanged):
		return nil, &driver.HeldError{RetryAfter: time.Millisecond}
	case cmp.Or(err, held) != nil:
		return nil, cmp.Or(err, held)
	}
	return b.newLease(a, r.version, r.sent), nil
}

// undoRow frees what acquisition a took, if it took it, and its process's place in the queue, unless
// a later acquisition of the process waits there. If a may yet run, undoRow leaves a tombstone in the
// lock's own row, where a can't miss it.
func (b *Backend) undoRow(ctx context.Context, a *driver.Acquisition) error {
	mayHaveRun, err := b.updateRow(ctx, a.Key, func(r *rowView) error {
		if r.owner == a.ID {
			r.free()
			r.version -= int64(a.Tokens)
		}
		if a.Queue && !b.laterWaits(a) {
			r.leave(queueEntry(a.ID))
		}
		if a.MayHaveRun {
			r.tombstone(a.ID, a.TTL+tombstoneMargin)
		}
		return nil
	})
	if a.Queue && (err == nil || mayHaveRun) {
		b.hub.Notify(waiterID(a.Key, a.ID)) // a waiter that came meanwhile may have relied on the place, and needs another
	}
	return err
}

// RaiseToken implements [driver.TokenRaiser]. The row keeps the token until the clock is past it.
func (b *Backend) RaiseToken(ctx context.Context, held driver.Lease, least uint64) error {
	if s, ok := held.(*sessionLease); ok {
		held = s.Lease
	}
	l, ok := held.(*lease)
	if !ok || l.backend != b {
		return fmt.Errorf("%w: sqllock has no tokens to raise of a %T", driver.ErrInvalid, held)
	}
	_, err := b.updateRow(via(ctx, b.renewConns, 0), l.key, func(r *rowView) error {
		if !r.isHeld(l.id) {
			return driver.ErrLost
		}
		r.version = max(r.version, int64(least))
		return nil
	})
	return err
}

// look returns the row of key.
func (b *Backend) look(ctx context.Context, key string) (*rowView, error) {
	found, _, err := b.run(ctx, b.sql.statement("row.sql", values{"key": []byte(key)}))
	switch {
	case err != nil:
		return nil, b.missingTable(ctx, err)
	case found.number(0, 1) == 0:
		return nil, errAutocommitOff
	}
	return rowViewOf(found), nil
}

// rowViewOf returns the row that row.sql has answered with.
func rowViewOf(found answer) *rowView {
	n := func(column int) int64 { return found.number(0, column) }
	texts := found.rows[0][8:]
	return &rowView{now: n(0), otherKind: n(2) == 1, exists: n(3) == 1, sent: found.sent, row: row{
		acquired: n(4), expires: n(5), version: n(6), undoneUntil: n(7),
		owner: texts[0], waiting: texts[1], undone: texts[2],
	}}
}

// updateRow looks at the row of key, has decide change it, and writes it if nobody else has changed
// the row since. Else it begins anew.
func (b *Backend) updateRow(ctx context.Context, key string, decide func(r *rowView) error) (mayHaveRun bool, err error) {
	for try := range 10 {
		if try > 1 && !engine.Pause(ctx, time.Duration(try)*time.Millisecond) {
			break
		}
		r, err := b.look(ctx, key)
		if err != nil {
			return mayHaveRun, err
		}
		before := r.row
		if err := decide(r); err != nil || r.row == before {
			return mayHaveRun, err
		}
		v := values{
			"key": []byte(key), "owner": r.owner, "acquired": r.acquired, "expires": r.expires, "token": r.version,
			"waiting": r.waiting, "undone": r.undone, "until": r.undoneUntil,
			"seenowner": before.owner, "seenexpires": before.expires, "seentoken": before.version,
			"seenwaiting": before.waiting, "seenundone": before.undone,
		}
		put := "put.sql"
		if !r.exists {
			put = "put_new.sql"
		}
		found, unanswered, err := b.run(ctx, b.sql.statement(put, v))
		mayHaveRun = mayHaveRun || unanswered
		if err != nil || found.changed() > 0 {
			return mayHaveRun, err
		}
	}
	return mayHaveRun, cmp.Or(ctx.Err(), errRowChanged)
}

// errRowChanged says that the row is no longer what it was at the look.
var errRowChanged = errors.New("the lock's row changes all the time")
