package quorum

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// lease implements [driver.Lease] by the leases that members granted. It lasts while a majority of these does.
type lease struct {
	backend      *Backend
	key          string
	ttl          time.Duration
	first, n     uint64
	keepWhenLost bool // once lost, its remaining parts are not released: the lock has a delay, or no renewals

	released chan error // the answer of a majority to the release, for one call of Release; then closed

	mu        sync.Mutex // guards the rest
	parts     []*part
	look      func() // of the Locker, or nil
	releasing bool   // no more parts join
}

// part is one member's lease.
type part struct {
	driver.Lease
	member *member
	base   uint64 // to add to the Lease's tokens
	gate   bool
	lost   bool // the member answered a renewal: not yours; the lease's mutex guards it
}

func newLease(b *Backend, a *driver.Acquisition, first uint64) *lease {
	return &lease{backend: b, key: a.Key, ttl: a.TTL, first: first, n: a.Tokens, keepWhenLost: a.NoRenewal, released: make(chan error, 1)}
}

// join makes the grant of x part of l. It reports false if l is being released already.
//
// A member that may not vote can also join a lease that a majority holds: to take the key, others need a
// majority of members that remember, and so one of those that hold l now.
func (l *lease) join(x *ballot) bool {
	l.mu.Lock()
	if l.releasing {
		l.mu.Unlock()
		return false
	}
	p := &part{Lease: x.lease, member: x.member, base: x.base, gate: x.gate}
	l.parts = append(l.parts, p)
	look := l.look
	l.mu.Unlock()
	p.notify(look)
	return true
}

func (p *part) notify(look func()) {
	if n, ok := p.Lease.(driver.LossNotifier); ok && look != nil {
		n.NotifyLoss(look)
	}
}

// release releases p. last is a token of the quorum's lease, and may be none of p's tokens.
func (p *part) release(ctx context.Context, last uint64) error {
	if p.member.base != nil {
		first, n := p.Lease.Tokens()
		last = min(max(last, p.base+first-1)-p.base, first+n-1)
	}
	return p.Release(ctx, last)
}

// Deadline implements [driver.Lease]: the last instant at which a majority of leases lasts.
func (l *lease) Deadline() driver.Instant {
	l.mu.Lock()
	defer l.mu.Unlock()
	var ends []driver.Instant
	for _, p := range l.parts {
		if !p.lost {
			ends = append(ends, p.Deadline())
		}
	}
	if len(ends) < l.backend.majority {
		return driver.Instant{}
	}
	slices.SortFunc(ends, func(a, b driver.Instant) int { return cmp.Compare(b.Sub(a), 0) }) // the latest first
	return ends[l.backend.majority-1]
}

// Tokens implements [driver.Lease].
func (l *lease) Tokens() (first, n uint64) { return l.first, l.n }

// wanted reports whether some member says that another process waits. lease does not implement
// driver.WantedLease, because the Locker would then end its tenure early, and to pass the lock to
// another process costs several round trips.
func (l *lease) wanted() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.parts, func(p *part) bool {
		w, ok := p.Lease.(driver.WantedLease)
		return ok && w.Wanted()
	})
}

// NotifyLoss implements [driver.LossNotifier].
func (l *lease) NotifyLoss(look func()) {
	l.mu.Lock()
	l.look = look
	parts := slices.Clone(l.parts)
	l.mu.Unlock()
	for _, p := range parts {
		p.notify(look)
	}
}

// Renew implements [driver.Lease].
func (l *lease) Renew(ctx context.Context, ttl time.Duration) error {
	return l.backend.RenewAll(ctx, []driver.Lease{l}, []time.Duration{ttl})[0]
}

// Release implements [driver.Lease]. It waits for the answers of a majority, and goes on in the
// background until each member has answered or its lease is over.
func (l *lease) Release(ctx context.Context, last uint64) error {
	if l.wanted() {
		l.backend.noteContention(l.key)
	}
	l.mu.Lock()
	keep := l.keepWhenLost && !l.releasing && l.heldLocked() < l.backend.majority
	if !keep {
		l.beginReleaseLocked(ctx, last)
	}
	l.mu.Unlock()
	if keep {
		return driver.ErrLost
	}
	select {
	case err, first := <-l.released:
		if !first {
			return driver.ErrLost
		}
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// heldLocked returns how many parts are not lost, as far as is known.
func (l *lease) heldLocked() (n int) {
	for _, p := range l.parts {
		if !p.lost {
			n++
		}
	}
	return n
}

// beginReleaseLocked begins to release l, unless that has begun.
func (l *lease) beginReleaseLocked(ctx context.Context, last uint64) {
	if !l.releasing {
		l.releasing = true
		l.backend.begin(func() { l.releaseParts(context.WithoutCancel(ctx), last) })
	}
}

// releaseParts releases all parts. It releases the gate's part when so many others are free that they make a
// majority with it, or after a timeout: else the next holder would find the others still held.
func (l *lease) releaseParts(ctx context.Context, last uint64) {
	answers := make(chan error, len(l.parts)) // no part joins any more
	begin := func(p *part) {
		l.backend.begin(func() {
			answers <- l.backend.insist(ctx, l.ttl, func(ctx context.Context) error { return p.release(ctx, last) })
		})
	}
	var gate *part
	for _, p := range l.parts {
		if p.gate {
			gate = p
		} else {
			begin(p)
		}
	}
	freed, failed := 0, 0
	count := func(err error) {
		if err == nil {
			freed++
		} else {
			failed++
		}
	}
	if gate != nil {
		limited, cancel := l.backend.limited(ctx, l.ttl)
		defer cancel()
		for range min(l.backend.majority, len(l.parts)) - 1 {
			select {
			case err := <-answers:
				count(err)
			case <-limited.Done():
			}
		}
		begin(gate)
	}
	for freed < l.backend.majority && failed <= len(l.parts)-l.backend.majority {
		count(<-answers)
	}
	if freed < l.backend.majority {
		l.released <- driver.ErrLost
	} else {
		l.released <- nil
	}
	close(l.released)
}
