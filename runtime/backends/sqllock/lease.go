package sqllock

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// lease implements [driver.Lease]: a row of the table.
type lease struct {
	backend    *Backend
	key, id    string
	first, n   uint64
	ttl        atomic.Int64 // of the last renewal, ns
	deadline   engine.Deadline
	unanswered bool        // some attempt to acquire had no answer: a copy may yet arrive
	freed      atomic.Bool // perhaps: some attempt to release had no answer
}

func (b *Backend) newLease(a *driver.Acquisition, first uint64, sent driver.Instant) *lease {
	l := &lease{backend: b, key: a.Key, id: a.ID, first: first, n: a.Tokens, unanswered: a.MayHaveRun}
	l.extend(sent, a.TTL)
	return l
}

func (l *lease) Deadline() driver.Instant { return l.deadline.Get() }

func (l *lease) Tokens() (first, n uint64) { return l.first, l.n }

// extend says that the row lasts for ttl after sent: the statement shortens no lease.
func (l *lease) extend(sent driver.Instant, ttl time.Duration) {
	l.deadline.Extend(sent.Add(ttl.Truncate(time.Microsecond))) // as the server was told
	l.ttl.Store(int64(ttl))
}

func (l *lease) Renew(ctx context.Context, ttl time.Duration) error {
	return l.backend.RenewAll(ctx, []driver.Lease{l}, []time.Duration{ttl})[0]
}

func (l *lease) Release(ctx context.Context, last uint64) error {
	// What may be over goes by itself: who is told of a batch that not all were freed can't
	// always tell which.
	if !l.unanswered && l.deadline.Get().Left() > 0 {
		if l.backend.frees.goAlone() {
			defer l.backend.frees.wentAlone()
		} else if err := l.releaseTogether(ctx, last); !errors.Is(err, errNotSent) || ctx.Err() != nil {
			return err
		}
	}
	return l.release(ctx, l.backend.pool, last)
}

// release frees the row, by a statement on a connection of from.
func (l *lease) release(ctx context.Context, from connector, last uint64) error {
	b := l.backend
	freedBefore := l.freed.Load()
	v := values{"key": []byte(l.key), "id": l.id, "last": int64(last)}
	r, unanswered, err := b.run(ctx, from, b.sql.release.with(v))
	if unanswered && from.another() { // a session that is gone has lost its lock: a row that is not ours is a loss then
		l.freed.Store(true)
	}
	if err != nil {
		return err
	}
	if l.unanswered { // after the release, so that this is not what frees the row
		if err := l.leaveTombstone(ctx, from); err != nil {
			l.freed.Store(true)
			return err
		}
	}
	if r.freed() == 0 && !freedBefore && !unanswered {
		return driver.ErrLost
	}
	// Freed, or freed before by an attempt whose answer was lost.
	return nil
}

// leaveTombstone sees to it that no copy of the acquire, still on its way, takes the row.
func (l *lease) leaveTombstone(ctx context.Context, from connector) error {
	b := l.backend
	v := values{
		"key": []byte(l.key), "id": l.id, "n": int64(0), "leaver": nobody, "mark": mark(l.id),
		"until": (time.Duration(l.ttl.Load()) + straggler).Microseconds(),
	}
	_, _, err := b.run(ctx, from, b.sql.tombstone.with(v))
	return err
}
