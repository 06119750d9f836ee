package zklock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/lockgen/lockgen/runtime/internal/engine"
)

// span is how long the leases of one session are, and what follows from it.
type span struct {
	lease   time.Duration // the longest of its leases
	tick    time.Duration // no less than the servers'
	beat    time.Duration // how often more is proved to have lived
	timeout time.Duration // of the session
}

// spanOf returns the span for leases of ttl. The timeout is longer than the leases
// by how old a proof may be, an eighth and two ticks, because a lease is to have its
// whole length ahead when it is taken. most is the longest timeout that the servers give.
func spanOf(ttl, tick, most time.Duration) span {
	lease := engine.ClassTTL(ttl)
	if longest := longestLease(tick, most); lease > longest {
		lease = max(longest, ttl)
	}
	sp := span{lease: lease, tick: tick, beat: lease / 8}
	sp.timeout = (lease + sp.beat + 2*tick + time.Millisecond - 1) / time.Millisecond * time.Millisecond
	return sp
}

// suits reports whether a node for a lease of ttl may stay on a session of sp, where it has its place.
func (sp span) suits(ttl time.Duration) bool {
	return sp.lease >= ttl && sp.lease < 2*ttl+time.Second
}

// longestLease is how long a lease may be where timeouts are most at most.
func longestLease(tick, most time.Duration) time.Duration {
	return ((most - 2*tick) * 8 / 9).Truncate(time.Millisecond) - time.Millisecond
}

// limits are what the servers make of session timeouts.
type limits struct {
	least time.Duration // minSessionTimeout
	most  time.Duration // maxSessionTimeout
	tick  time.Duration
}

// shortSession and longSession are asked for to learn what the servers give instead.
const (
	shortSession = 200 * time.Millisecond
	longSession  = math.MaxInt32 * time.Millisecond
)

const (
	// recordsTTL stands for the session that records share, so that each look comes behind
	// the writes that were answered. A server that begins the next session has caught up with
	// what was agreed before.
	recordsTTL = 0
	// recordsLength is what that is suited for. Records do not depend on it, but a connection
	// that is silent is given up sooner the shorter it is.
	recordsLength = 2 * time.Second
)

// learn returns the servers' limits. They are asked for until they are known, by one
// question for all callers.
func (b *Backend) learn(ctx context.Context) (*limits, error) {
	if lim := b.limits.Load(); lim != nil {
		return lim, nil
	}
	err := b.learning.Do(ctx, b.life, b.askLimits)
	if err != nil && ctx.Err() != nil {
		return nil, fmt.Errorf("%w yet: %w", errAway, err)
	}
	return b.limits.Load(), err
}

// askLimits asks the servers for their limits.
func (b *Backend) askLimits(ctx context.Context) error {
	least, err := b.introduce(ctx, shortSession)
	if err != nil {
		return err
	}
	most, err := b.introduce(ctx, longSession)
	if err != nil {
		return err
	}
	b.limits.Store(&limits{least, most, cmp.Or(max(b.options.TickTime, 0), least/2)})
	return nil
}

// introduce begins a session, and returns the timeout that the servers grant for it.
func (b *Backend) introduce(ctx context.Context, timeout time.Duration) (granted time.Duration, err error) {
	s, err := b.open(ctx, span{timeout: timeout, beat: shortSession})
	if err != nil {
		return 0, err
	}
	defer s.Drop()
	defer s.End(errors.New("the session has shown what the servers grant"))
	return s.first, nil
}
