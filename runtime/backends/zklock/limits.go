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

// class is what the leases that share a session have in common: their length, and what follows
// from it.
type class struct {
	lease   time.Duration // the longest of its leases
	tick    time.Duration // no less than the servers'
	period  time.Duration // between keep-alives
	timeout time.Duration // of the session
}

// classOf returns the class for leases of ttl. The timeout is longer than the leases by the
// greatest age of a keep-alive, an eighth and two ticks: a lease has its whole length ahead
// when it is taken. most is the longest timeout that the servers grant.
func classOf(ttl, tick, most time.Duration) class {
	lease := engine.ClassTTL(ttl)
	if longest := longestLease(tick, most); lease > longest {
		lease = max(longest, ttl)
	}
	c := class{lease: lease, tick: tick, period: lease / 8}
	c.timeout = (lease + c.period + 2*tick + time.Millisecond - 1) / time.Millisecond * time.Millisecond
	return c
}

// suits reports whether a node that waits on a session of class c may stay there for a lease of
// ttl.
func (c class) suits(ttl time.Duration) bool {
	return c.lease >= ttl && c.lease < 2*ttl+time.Second
}

// longestLease returns the longest lease where most is the longest timeout.
func longestLease(tick, most time.Duration) time.Duration {
	return ((most - 2*tick) * 8 / 9).Truncate(time.Millisecond) - time.Millisecond
}

// limits are what the servers make of session timeouts.
type limits struct {
	least time.Duration // minSessionTimeout
	most  time.Duration // maxSessionTimeout
	tick  time.Duration
}

// shortSession and longSession are beyond the servers' limits, which they grant instead.
const (
	shortSession = 200 * time.Millisecond
	longSession  = math.MaxInt32 * time.Millisecond
)

const (
	// recordsTTL stands for the session that all records share. So each read of a record is sent
	// after the writes that were answered. A server that begins the next session has caught up
	// with all earlier ones.
	recordsTTL = 0
	// recordsLength is the length of lease that this session is made for. Records do not depend
	// on it; the shorter it is, the sooner a connection without answers is given up.
	recordsLength = 2 * time.Second
)

// serverLimits returns the servers' limits, and asks for them until they are known, once for all
// callers.
func (b *Backend) serverLimits(ctx context.Context) (*limits, error) {
	if lim := b.limits.Load(); lim != nil {
		return lim, nil
	}
	err := b.limitsCall.Do(ctx, b.life, b.askLimits)
	if err != nil && ctx.Err() != nil {
		return nil, fmt.Errorf("%w yet: %w", errNoConnection, err)
	}
	return b.limits.Load(), err
}

// askLimits asks the servers for their limits.
func (b *Backend) askLimits(ctx context.Context) error {
	least, err := b.grantedTimeout(ctx, shortSession)
	if err != nil {
		return err
	}
	most, err := b.grantedTimeout(ctx, longSession)
	if err != nil {
		return err
	}
	b.limits.Store(&limits{least, most, cmp.Or(max(b.options.TickTime, 0), least/2)})
	return nil
}

// grantedTimeout begins a session, ends it, and returns the timeout that the servers granted.
func (b *Backend) grantedTimeout(ctx context.Context, timeout time.Duration) (granted time.Duration, err error) {
	s, err := b.open(ctx, class{timeout: timeout, period: shortSession})
	if err != nil {
		return 0, err
	}
	defer s.Drop()
	defer s.End(errors.New("the session has shown what the servers grant"))
	return s.firstTimeout, nil
}
