package redislock

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// lease implements [driver.Lease].
type lease struct {
	backend    *Backend
	keys       keys
	id         string
	first      uint64
	n          uint64 // of tokens to use
	reserved   uint64 // of tokens at the server
	wanted     atomic.Bool
	asked      time.Duration // by the acquisition
	ttl        atomic.Int64  // of the last renewal, ns
	deadline   engine.Deadline
	unanswered bool        // some attempt to acquire had no answer: a copy may yet arrive
	entry      string      // what such a copy may have put in line, once the lease was over, or ""
	freed      atomic.Bool // perhaps: some attempt to release had no answer
}

func newLease(b *Backend, k keys, a *driver.Acquisition, first uint64) *lease {
	l := &lease{
		backend: b, keys: k, id: a.ID, asked: a.TTL, unanswered: a.MayHaveRun,
		first: first, n: a.Tokens, reserved: a.Tokens,
	}
	if a.MayHaveRun && a.Queue {
		l.entry = queueEntry(a)
	}
	return l
}

func (l *lease) Deadline() driver.Instant { return l.deadline.Get() }

// Term implements [driver.ProvisionalLease].
func (l *lease) Term() time.Duration { return time.Duration(l.ttl.Load()) }

// Wanted implements [driver.WantedLease].
func (l *lease) Wanted() bool { return l.wanted.Load() }

func (l *lease) Tokens() (first, n uint64) { return l.first, l.n }

// extend moves the deadline to ttl after sent, and never back: the script
// shortens no lease, and answers may come out of order.
func (l *lease) extend(sent driver.Instant, ttl time.Duration) {
	if l.deadline.Extend(sent.Add(ttl.Truncate(time.Millisecond))) { // as the server was told
		l.ttl.Store(int64(ttl))
	}
}

func (l *lease) Renew(ctx context.Context, ttl time.Duration) error {
	return l.backend.RenewAll(ctx, []driver.Lease{l}, []time.Duration{ttl})[0]
}
