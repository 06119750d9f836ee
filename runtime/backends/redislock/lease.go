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
	firstToken uint64
	tokens     uint64 // how many the holds on it may use
	reserved   uint64 // how many the server has reserved
	wanted     atomic.Bool
	acquireTTL time.Duration // the ttl that the acquisition asked for
	ttl        atomic.Int64  // of the last renewal, ns
	deadline   engine.Deadline
	unanswered bool        // some attempt to acquire had no answer: a copy may yet arrive
	entry      string      // the queue entry that such a copy may make once the lease is over, or ""
	mayBeFreed atomic.Bool // some attempt to release had no answer
}

func newLease(b *Backend, k keys, a *driver.Acquisition, first uint64) *lease {
	l := &lease{
		backend: b, keys: k, id: a.ID, acquireTTL: a.TTL, unanswered: a.MayHaveRun,
		firstToken: first, tokens: a.Tokens, reserved: a.Tokens,
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

func (l *lease) Tokens() (first, n uint64) { return l.firstToken, l.tokens }

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
