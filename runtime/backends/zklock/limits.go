package zklock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockgen/lockgen/runtime/backends/zklock/internal/client"
	"github.com/lockgen/lockgen/runtime/driver"
)

// span is how long the leases of one session are, and what follows from it.
type span struct {
	lease   time.Duration // the longest of its leases
	tick    time.Duration // no less than the servers'
	beat    time.Duration // how often more is proved to have lived
	timeout time.Duration // of the session
}

// spanOf returns the span for leases of ttl. Lengths that are close to each
// other share one, so that a Locker whose leases differ by its tenure has one
// session. The timeout is longer than the leases by how old a proof may be, an
// eighth and two ticks, because a lease is to have its whole length ahead when
// it is taken. most is the longest timeout that the server gives, 0 if unknown.
func spanOf(ttl, tick, most time.Duration) span {
	unit := time.Millisecond
	for unit*32 <= ttl {
		unit *= 2
	}
	lease := (ttl + unit - 1) / unit * unit
	if longest := longestLease(tick, most); most > 0 && lease > longest {
		lease = max(longest, ttl)
	}
	sp := span{lease: lease, tick: tick, beat: lease / 8}
	sp.timeout = (lease + sp.beat + 2*tick + time.Millisecond - 1) / time.Millisecond * time.Millisecond
	return sp
}

// suits reports whether leases of ttl may live on a session of sp.
func (sp span) suits(ttl time.Duration) bool {
	return sp.lease >= ttl && sp.lease < 2*ttl+time.Second
}

// longestLease is how long a lease may be where timeouts are most at most.
func longestLease(tick, most time.Duration) time.Duration {
	return ((most - 2*tick) * 8 / 9).Truncate(time.Millisecond) - time.Millisecond
}

// limits are what the servers make of session timeouts.
type limits struct {
	known chan struct{} // closed when the rest is
	err   error
	least time.Duration // minSessionTimeout
	most  time.Duration // maxSessionTimeout; 0 until a session was cut to it
	tick  time.Duration
}

const (
	// shortSession is asked for to learn what the servers give instead.
	shortSession = 200 * time.Millisecond
	// askFor is how long the servers may take over the first handshake.
	askFor = 5 * time.Second
)

var (
	errOutside = errors.New("the server grants another session timeout")
	errLearned = errors.New("the server's limits are known")
)

// spanFor returns the span for leases of ttl, if the servers allow it.
func (b *Backend) spanFor(ctx context.Context, ttl time.Duration) (sp span, err error) {
	lim, err := b.learn(ctx)
	if err != nil {
		return sp, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	longest := longestLease(lim.tick, lim.most)
	if ttl >= lim.least && (lim.most == 0 || ttl <= longest) {
		return spanOf(ttl, lim.tick, lim.most), nil
	}
	upper := "no known limit"
	if lim.most > 0 {
		upper = longest.String()
	}
	return sp, fmt.Errorf("%w: a lease of %v; with the session timeouts of this ZooKeeper (minSessionTimeout, maxSessionTimeout) zklock takes from %v to %s",
		driver.ErrInvalid, ttl, lim.least, upper)
}

// outside notes that granted is the longest timeout that the servers give.
func (b *Backend) outside(granted time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.limits != nil && (b.limits.most == 0 || granted < b.limits.most) {
		b.limits.most = granted
	}
}

// learn returns the servers' limits. It asks them once, by a session that is too
// short.
func (b *Backend) learn(ctx context.Context) (*limits, error) {
	b.mu.Lock()
	lim := b.limits
	if lim == nil {
		lim = &limits{known: make(chan struct{})}
		b.limits = lim
		if !b.life.Go(func(ctx context.Context) { b.ask(ctx, lim) }) {
			b.limits = nil
			b.mu.Unlock()
			return nil, driver.ErrClosed
		}
	}
	b.mu.Unlock()
	select {
	case <-lim.known:
		return lim, lim.err
	case <-ctx.Done():
		return nil, fmt.Errorf("%w, there is no connection to ZooKeeper yet: %w", errNotSent, ctx.Err())
	}
}

// ask fills in lim.
func (b *Backend) ask(ctx context.Context, lim *limits) {
	least, err := b.introduce(ctx, func(least time.Duration) { b.learned(lim, least, nil) })
	if least == 0 {
		b.learned(lim, 0, err)
	}
}

func (b *Backend) learned(lim *limits, least time.Duration, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	lim.least, lim.tick = least, least/2
	if b.options.TickTime > 0 {
		lim.tick = b.options.TickTime
	}
	if err != nil {
		lim.err = fmt.Errorf("%w, there is no connection to ZooKeeper: %w", errNotSent, err)
		b.limits = nil // the next one asks again
	}
	close(lim.known)
}

// introduce begins a session of the shortest timeout that the servers grant, tells
// ready which that is, and ends the session.
func (b *Backend) introduce(ctx context.Context, ready func(least time.Duration)) (least time.Duration, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ctx, stop := context.WithTimeoutCause(ctx, askFor, errors.New("no server has answered"))
	defer stop()
	var granted time.Duration
	config := b.config(shortSession, askFor)
	config.Granted = func(g client.Grant) { granted = g.Timeout }
	config.Ready = func() {
		if least == 0 {
			least = granted
			ready(least)
		}
		cancel(errLearned)
	}
	config.Failed = func(err error) { cancel(err) }
	config.Event = func(client.Event) {}
	c := client.New(config)
	err = c.Run(ctx)
	if errors.Is(err, errLearned) {
		return least, nil
	}
	return least, errors.Join(err, c.Why())
}
