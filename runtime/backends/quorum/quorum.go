package quorum

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

const (
	// defaultLongest is Options.LongestTTL unless set.
	defaultLongest = time.Minute
	// longestTimeout is Options.Timeout unless set, or a tenth of the lease if that is less.
	longestTimeout = 500 * time.Millisecond
	// closeLimit is how long Close lets what is under way be undone.
	closeLimit = time.Second
)

// Options of a [Backend]. The zero value is the default.
type Options struct {
	// Timeout is how long one call to one member may take. 0 is a tenth of the lease, and
	// 500 ms at most. A member that is silent holds no caller up, as long as a majority is
	// not: Timeout says how soon a call fails if a majority is silent, and when a member
	// counts as away. It should be several times the round trip to the farthest member.
	Timeout time.Duration

	// LongestTTL is the longest lease that any process takes: a minute unless set. A member
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
	unusable atomic.Pointer[error] // why it can't be used, if it can't

	users  atomic.Int64 // Lockers that attached and did not close
	attach sync.Once
	closed sync.Once
	alive  context.Context // ends what goes on in the background
	end    context.CancelFunc
	work   sync.WaitGroup

	mu     sync.Mutex                // guards the rest, and the id of each member
	under  map[string]*acquiring     // acquisitions under way, by ID
	wanted map[string]driver.Instant // keys that several want, until when that is remembered
}

// New returns a Backend made of members, which have names for errors to say, with the last of
// options. It does no I/O. The members are closed by its Close, and may be used beside it.
// Fewer than three, one that is nil or there twice, or one whose fencing tokens can't be
// raised, is an error of every call, and of Ping.
func New(members map[string]driver.Backend, options ...Options) *Backend {
	b := &Backend{majority: len(members)/2 + 1, under: map[string]*acquiring{}, wanted: map[string]driver.Instant{}}
	for _, o := range options {
		b.options = o
	}
	if b.options.LongestTTL <= 0 {
		b.options.LongestTTL = defaultLongest
	}
	b.alive, b.end = context.WithCancel(context.Background())
	if len(members) < 3 {
		b.refuse("New got %d members; give it three or more, because with fewer the lock is gone as soon as one of them is away", len(members))
	}
	seen := map[driver.Backend]string{}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		engine := members[name]
		if engine == nil {
			b.refuse("the member %q is nil; give it a Backend, such as redislock.New returns", name)
			continue
		}
		if reflect.TypeOf(engine).Comparable() {
			if other, twice := seen[engine]; twice {
				b.refuse("the members %q and %q are one Backend; give each a server of its own", other, name)
			}
			seen[engine] = name
		}
		m := &member{Backend: engine, name: name, backend: b}
		m.raiser, _ = engine.(driver.TokenRaiser)
		if keeps, ok := engine.(driver.Agreement); ok && m.raiser == nil {
			m.base = &base{record: keeps}
			m.raiser = m.base
		}
		m.incarnated, _ = engine.(driver.Incarnated)
		if m.raiser == nil {
			b.refuse("the fencing tokens of the member %q, a %T, can't be raised, so that they could fall when another majority decides; "+
				"use members that implement driver.TokenRaiser or driver.Agreement, as redislock, sqllock, etcdlock and memlock do", name, engine)
		}
		b.members = append(b.members, m)
	}
	return b
}

// refuse makes every call of b fail, because of why. The first reason stays.
func (b *Backend) refuse(why string, args ...any) {
	err := fmt.Errorf("%w: quorum: %s", driver.ErrInvalid, fmt.Sprintf(why, args...))
	b.unusable.CompareAndSwap(nil, &err)
}

// usable returns why b can't be used, or nil.
func (b *Backend) usable() error {
	if err := b.unusable.Load(); err != nil {
		return *err
	}
	if b.alive.Err() != nil {
		return fmt.Errorf("%w: quorum", driver.ErrClosed)
	}
	return nil
}

// Attach implements [driver.Shared].
func (b *Backend) Attach() {
	b.users.Add(1)
	b.attach.Do(func() {
		for _, m := range b.members {
			if s, ok := m.Backend.(driver.Shared); ok {
				s.Attach()
			}
		}
	})
}

// Close implements [driver.Backend]: the last Locker to close closes the members.
func (b *Backend) Close() (err error) {
	if b.users.Add(-1) > 0 {
		return nil
	}
	b.closed.Do(func() {
		limit := time.AfterFunc(min(closeLimit, 2*b.timeout(b.options.LongestTTL)), b.end)
		b.work.Wait()
		limit.Stop()
		b.end()
		for _, m := range b.members {
			err = errors.Join(err, m.Close())
		}
	})
	return err
}

// Ping implements [driver.Pinger]: a majority answers, and may vote.
func (b *Backend) Ping(ctx context.Context) error {
	if err := b.usable(); err != nil {
		return err
	}
	answers := make(chan error, len(b.members))
	for _, m := range b.members {
		b.work.Go(func() { answers <- m.ping(ctx) })
	}
	var failed []error
	for answered := 1; ; answered++ {
		select {
		case err := <-answers:
			if err != nil {
				failed = append(failed, err)
			}
		case <-ctx.Done():
			return errors.Join(append(failed, ctx.Err())...)
		}
		acquainted := answered == len(b.members) || !b.acquainting() // asked first: it may make b unusable
		switch {
		case b.unusable.Load() != nil:
			return *b.unusable.Load()
		case answered-len(failed) >= b.majority && acquainted:
			return nil
		case len(failed) > len(b.members)-b.majority:
			return fmt.Errorf("no majority of the %d members: %w", len(b.members), errors.Join(failed...))
		}
	}
}

// AtOnce implements [driver.Bounded].
func (b *Backend) AtOnce() int {
	least := 256
	for _, m := range b.members {
		if bounded, ok := m.Backend.(driver.Bounded); ok {
			least = min(least, bounded.AtOnce())
		}
	}
	return least
}

// Subscribe implements [driver.Notifier], at the gate of the key.
func (b *Backend) Subscribe(ctx context.Context, a *driver.Acquisition) (driver.Subscription, error) {
	if err := b.usable(); err != nil {
		return nil, err
	}
	gate := b.gate(a.Key)
	n, ok := gate.Backend.(driver.Notifier)
	if !ok {
		return nil, fmt.Errorf("the member %q, a %T, tells of no release", gate.name, gate.Backend)
	}
	return n.Subscribe(ctx, a)
}

// timeout is how long a call about a lease of this length may take at one member.
func (b *Backend) timeout(ttl time.Duration) time.Duration {
	if b.options.Timeout > 0 {
		return b.options.Timeout
	}
	return min(ttl/10, longestTimeout)
}

// gate returns the member whose queue orders who waits for key: the first of an order that
// differs for each key, without those that did not answer last.
func (b *Backend) gate(key string) (gate *member) {
	var most uint64
	for _, answering := range []bool{true, false} {
		for _, m := range b.members {
			if answering && m.silent.Load() {
				continue
			}
			if w := weight(m.name, key); gate == nil || w > most {
				gate, most = m, w
			}
		}
		if gate != nil {
			break
		}
	}
	return gate
}

// weight is the place of a member in the order of key.
func weight(name, key string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	_, _ = h.Write([]byte{0})
	_, _ = h.Write([]byte(key))
	w := h.Sum64() // FNV alone mixes the last bytes too little
	w = (w ^ w>>33) * 0xff51afd7ed558ccd
	w = (w ^ w>>33) * 0xc4ceb9fe1a85ec53
	return w ^ w>>33
}
