package sqllock

import (
	"context"
	"fmt"
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
	return l.backend.ReleaseAll(ctx, []driver.Lease{l}, []uint64{last})[0]
}

// row is one of several leases that a statement is about, and what its caller is to be told.
type row struct {
	*lease
	to   time.Duration // that it is to last, if it is renewed
	last uint64        // token that was used, if it is released
	err  *error
}

func valuesOf(part []row) values {
	v := values{}
	for i, one := range part {
		v[fmt.Sprint("key", i)], v[fmt.Sprint("id", i)], v[fmt.Sprint("last", i)] = []byte(one.key), one.id, int64(one.last)
	}
	return v
}

// leaveTombstone sees to it that no copy of an acquire, still on its way, takes the row.
func (b *Backend) leaveTombstone(ctx context.Context, from connector, key, id string, ttl time.Duration) error {
	v := values{"key": []byte(key), "mark": mark(id), "until": (ttl + straggler).Microseconds()}
	_, _, err := b.run(ctx, from, b.sql.of("tombstone", 0).with(v))
	return err
}
