package sqllock

import (
	"cmp"
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

// newLease returns the lease of a, whose row has the highest token version since an instant after
// sent.
func (b *Backend) newLease(a *driver.Acquisition, version int64, sent driver.Instant) *lease {
	l := &lease{backend: b, key: a.Key, id: a.ID, first: uint64(version) - a.Tokens + 1, n: a.Tokens, unanswered: a.MayHaveRun}
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

// isPlain reports whether l may be released with others. What may be over is not: who is told of
// a batch that not all were freed can't always tell which.
func (l *lease) isPlain() bool { return !l.unanswered && l.deadline.Get().Left() > 0 }

func (l *lease) Release(ctx context.Context, last uint64) error {
	if l.isPlain() {
		if l.backend.frees.goAlone() {
			defer l.backend.frees.wentAlone()
		} else if err := l.releaseTogether(ctx, last); !errors.Is(err, errNotSent) || ctx.Err() != nil {
			return err
		}
	}
	return l.release(ctx, l.backend.pool, last)
}

// release frees the row, by a statement on a connection of from, and sees to it that no copy of
// the acquire, still on its way, takes it.
func (l *lease) release(ctx context.Context, from connector, last uint64) error {
	one := &freeing{lease: l, last: last}
	l.backend.freeRows(ctx, from, []*freeing{one})
	if !l.unanswered || one.err != nil && !errors.Is(one.err, driver.ErrLost) {
		return one.err
	}
	_, err := l.backend.change(ctx, from, l.key, func(r *seen) error { // after the release, which tells whether the lock was lost
		r.tombstone(l.id, time.Duration(l.ttl.Load())+straggler)
		return nil
	})
	if err != nil {
		l.freed.Store(true)
	}
	return cmp.Or(err, one.err)
}
