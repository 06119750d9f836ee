package sharded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
)

const defaultKey = "lockgen.sharded"

// Options of a [Backend]. The zero value is the default. All but Probe and Timeout must be
// the same in all processes.
type Options struct {
	// Version is the version of the membership: 1 unless set. A change of the members needs a
	// higher version.
	Version uint64
	// Leaving are the members of the version before that are not in this one, by name. Their
	// records are changed so that they have no keys any more, and they must answer until then.
	// One that is nil is gone for good: no process can reach it.
	Leaving map[string]driver.Backend
	// Key is the key at which each member keeps its record: "lockgen.sharded" unless set.
	Key string

	// LongestTTL is the longest lease that any process takes: a minute unless set, and ten years
	// at most. Keys that move wait for it. A ttl above it is ErrInvalid; leave room for lock.Options.HandOff.
	LongestTTL time.Duration
	// Silence is how long the record of a member may stay unread before this process
	// grants nothing there: 10 s unless set. Keys that move wait for it as well.
	Silence time.Duration

	// Probe is how often the record of each member is read: every second unless set.
	Probe time.Duration
	// Timeout is how long that may take: a second unless set.
	Timeout time.Duration
}

// Backend takes each lock at one of its members, by a hash of the key. Make it with [New];
// its methods may be called from any number of goroutines.
type Backend struct {
	options     Options
	terms       engine.Terms // as Options say
	names       []string     // of the members, sorted
	members     map[string]*member
	withLeaving []*member       // the members, and those of Options.Leaving
	gone        map[string]bool // those of Options.Leaving that are nil

	group    *engine.Group
	outdated atomic.Bool // a later version is in use: b writes no record
}

// New returns a Backend made of members, with the last of options. The names decide which
// keys a member has. New does no I/O. Close closes the members, and those that leave, which may
// be used beside the Backend.
//
// If there is no member, or one is nil, there twice, can't keep its record, or has fencing tokens
// that do not go by a clock, every call and Ping return an error.
func New(members map[string]driver.Backend, options ...Options) *Backend {
	b := &Backend{group: engine.NewGroup("sharded"), members: map[string]*member{}, gone: map[string]bool{}}
	for _, o := range options {
		b.options = o
	}
	o := &b.options
	o.Version, o.Key = max(o.Version, 1), cmp.Or(o.Key, defaultKey)
	b.terms = engine.Terms{LongestTTL: o.LongestTTL, Silence: o.Silence, Probe: o.Probe, Timeout: o.Timeout}.Complete()
	if len(members) == 0 {
		b.group.Refuse("New got no member; give it one engine or more")
	}
	b.names = slices.Sorted(maps.Keys(members))
	for _, name := range b.names {
		b.members[name] = b.add(name, members[name])
	}
	for _, name := range slices.Sorted(maps.Keys(b.options.Leaving)) {
		switch e := b.options.Leaving[name]; {
		case b.members[name] != nil:
			b.group.Refuse("%q is a member, and leaves; take it out of one of the two", name)
		case e == nil:
			b.gone[name] = true
		default:
			b.add(name, e)
		}
	}
	b.group.Start = func() {
		for _, m := range b.withLeaving {
			b.group.Life.Go(m.watch)
		}
	}
	return b
}

func (b *Backend) add(name string, e driver.Backend) *member {
	m := &member{Backend: e, name: name, backend: b}
	if !b.group.Add(name, e) {
		return m
	}
	at, keeps := e.(driver.Agreement)
	if _, raises := e.(driver.TokenRaiser); !keeps || !raises {
		b.group.Refuse("the member %q, a %T, can't keep the record of its keys (driver.Agreement), or its fencing tokens do not go by a clock "+
			"(driver.TokenRaiser), so that they could fall for a key that moves; use members such as redislock.New returns", name, e)
	}
	m.record = engine.Agreed[state]{Of: fmt.Sprintf("which keys the member %q has", name), Key: b.options.Key, At: at, Terms: b.terms, Life: b.group.Life, Learn: m.learn}
	b.withLeaving = append(b.withLeaving, m)
	return m
}

// Attach implements [driver.Shared].
func (b *Backend) Attach() { b.group.Attach() }

// Close implements [driver.Backend]: the last Locker to close ends what runs in the
// background, and closes the members.
func (b *Backend) Close() (err error) { return b.group.Close(0) }

// Ping implements [driver.Pinger]: each member answers, and has a record. Keys that move may
// still wait.
func (b *Backend) Ping(ctx context.Context) error {
	if err := b.group.Usable(); err != nil {
		return err
	}
	errs := make([]error, len(b.names))
	var all sync.WaitGroup
	for i, name := range b.names {
		all.Go(func() {
			m := b.members[name]
			_, err := m.current(ctx)
			if p, ok := m.Backend.(driver.Pinger); ok && err == nil {
				err = p.Ping(ctx)
			}
			if err != nil {
				errs[i] = fmt.Errorf("member %q: %w", name, driver.Locate(m.Backend, err))
			}
		})
	}
	all.Wait()
	if err := b.group.Refused(); err != nil {
		return err
	}
	return errors.Join(errs...)
}

// AtOnce implements [driver.Bounded].
func (b *Backend) AtOnce() int { return b.group.AtOnce() }

// Servers implements [driver.Located].
func (b *Backend) Servers() []string { return b.group.Servers() }

// Owner returns the name of the member that has key by the membership of b.
func (b *Backend) Owner(key string) string { return owner(b.names, key) }
