package quorum

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

const (
	// defaultLongest is Options.LongestTTL unless set.
	defaultLongest = time.Minute
	// longestTimeout is Options.Timeout unless set, if a tenth of the lease is not less.
	longestTimeout = 500 * time.Millisecond
	// closeLimit is how long Close waits for calls and undos under way.
	closeLimit = time.Second
)

// Options of a [Backend]. The zero value is the default.
type Options struct {
	// Timeout is how long one call to one member may take. 0 is a tenth of the lease, and
	// 500 ms at most. A silent member delays no caller as long as a majority answers:
	// Timeout says how soon a call fails if no majority does, and when a member counts as
	// away. It should be several times the round trip to the farthest member.
	Timeout time.Duration

	// LongestTTL is the longest lease that any process takes: a minute unless set, and ten years at most. A member
	// that has forgotten its locks, because it restarted, votes again when so much time has
	// passed. All processes must be given the same. A ttl above it is ErrInvalid; leave room
	// for lock.Options.HandOff, by which a Locker makes a lease longer where it may.
	LongestTTL time.Duration
}

// Backend keeps each lock at a majority of its members. Make it with [New]; its methods may
// be called from any number of goroutines.
type Backend struct {
	options  Options
	members  []*member
	majority int

	group *engine.Group

	mu             sync.Mutex                // guards the rest, and the id and the notes of each member
	ops            map[string]*acquireOp     // acquisitions under way, by ID
	contendedUntil map[string]driver.Instant // keys that several processes want, see contentionTTL
}

// New returns a Backend made of members, with the last of options. Errors say the members' names.
// New does no I/O. Close closes the members, which may be used beside the Backend. If there are
// fewer than three, or one is nil, there twice, or has fencing tokens that can't be raised, every
// call and Ping return an error.
func New(members map[string]driver.Backend, options ...Options) *Backend {
	b := &Backend{group: engine.NewGroup("quorum"), majority: len(members)/2 + 1, ops: map[string]*acquireOp{}, contendedUntil: map[string]driver.Instant{}}
	for _, o := range options {
		b.options = o
	}
	b.options.LongestTTL = engine.DurationOr(b.options.LongestTTL, defaultLongest)
	if len(members) < 3 {
		b.group.Refuse("New got %d members; give it three or more, because with fewer the lock is gone as soon as one of them is away", len(members))
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		e := members[name]
		if !b.group.Add(name, e) {
			continue
		}
		m := &member{Backend: e, name: name, backend: b, silentCalls: make(chan struct{}, maxSilentCalls), lastNote: make(chan struct{})}
		close(m.lastNote)
		m.raiser, _ = e.(driver.TokenRaiser)
		if m.record, _ = e.(driver.Agreement); m.record != nil && m.raiser == nil {
			m.base = &tokenBase{record: m.record}
			m.raiser = m.base
		}
		m.incarnated, _ = e.(driver.Incarnated)
		if m.raiser == nil {
			b.group.Refuse("the fencing tokens of the member %q, a %T, can't be raised, so that they could fall when another majority decides; "+
				"use members that implement driver.TokenRaiser or driver.Agreement, as redislock, sqllock, etcdlock and memlock do", name, e)
		}
		b.members = append(b.members, m)
	}
	return b
}

// Attach implements [driver.Shared].
func (b *Backend) Attach() { b.group.Attach() }

// Close implements [driver.Backend]: the last Locker to close waits for what is under way, for a
// second at most, and closes the members.
func (b *Backend) Close() (err error) {
	return b.group.Close(min(closeLimit, 2*b.timeout(b.options.LongestTTL)))
}

// begin runs f in a goroutine that Close waits for, even if Close is waiting already: a holder may
// release its lock at that time.
func (b *Backend) begin(f func()) {
	b.group.Life.Begin(func(context.Context) { f() })
}

// Ping implements [driver.Pinger]: a majority answers, and may vote. It then waits another timeout for the
// other members, in case two of them are one server.
func (b *Backend) Ping(ctx context.Context) error {
	if err := b.group.Usable(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(b.group.Life.Context(), cancel)()
	answers := make(chan error, len(b.members))
	for _, m := range b.members {
		b.begin(func() { answers <- m.ping(ctx) })
	}
	var failed []error
	var late <-chan time.Time // set once the answer of a majority is known
	good := 0
	for open := len(b.members); open > 0; open-- {
		select {
		case err := <-answers:
			if err != nil {
				failed = append(failed, err)
			} else {
				good++
			}
		case <-late:
			open = 0
		case <-ctx.Done():
			failed = append(failed, ctx.Err())
			open = 0
		}
		if late == nil && (good >= b.majority || len(failed) > len(b.members)-b.majority || b.group.Refused() != nil) {
			late = time.After(b.timeout(b.options.LongestTTL))
		}
	}
	switch err := b.group.Usable(); {
	case err != nil:
		return err
	case good >= b.majority:
		return nil
	}
	return fmt.Errorf("no majority of the %d members: %w", len(b.members), errors.Join(failed...))
}

// AtOnce implements [driver.Bounded].
func (b *Backend) AtOnce() int { return b.group.AtOnce() }

// Servers implements [driver.Located].
func (b *Backend) Servers() []string { return b.group.Servers() }

// Subscribe implements [driver.Notifier], at the gate of the key, also when another becomes the gate.
func (b *Backend) Subscribe(ctx context.Context, a *driver.Acquisition) (driver.Subscription, error) {
	if err := b.group.Usable(); err != nil {
		return nil, err
	}
	key := a.Key
	return engine.Follow(ctx, b.group.Life, a, func() driver.Backend { return b.gate(key).Backend })
}

// timeout returns how long a call about a lease of this length may take at one member.
func (b *Backend) timeout(ttl time.Duration) time.Duration {
	if b.options.Timeout > 0 {
		return b.options.Timeout
	}
	return min(ttl/10, longestTimeout)
}

// limited returns ctx with the timeout of a call to one member. It also ends with the Backend.
func (b *Backend) limited(ctx context.Context, ttl time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, b.timeout(ttl))
	stop := context.AfterFunc(b.group.Life.Context(), cancel)
	return ctx, func() { stop(); cancel() }
}

// gate returns the member whose queue orders the waiters for key: the first in an order that differs
// for each key, without the members that did not answer their last call.
func (b *Backend) gate(key string) (gate *member) {
	var most uint64
	for _, answering := range []bool{true, false} {
		for _, m := range b.members {
			if answering && m.silent.Load() {
				continue
			}
			if w := engine.Weight(m.name, key); gate == nil || w > most {
				gate, most = m, w
			}
		}
		if gate != nil {
			break
		}
	}
	return gate
}
