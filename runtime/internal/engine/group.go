package engine

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/fnv"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
)

// Group has the member Backends of a composed Backend, and closes them. It also has the reason why
// the composed Backend can't be used, if there is one. Make it with [NewGroup].
type Group struct {
	Life  *Life
	Start func() // unless nil: starts the background work, at the first call

	start   sync.Once
	pkg     string           // the package's name, for errors
	names   []string         // of the members
	all     []driver.Backend // the members, and after them those of Keep
	attach  sync.Once
	refused atomic.Pointer[error]
}

// NewGroup returns a group without members, of the package with this name.
func NewGroup(pkg string) *Group { return &Group{Life: NewLife(), pkg: pkg} }

// Refuse makes every call fail, for the reason why. The first reason stays.
func (g *Group) Refuse(why string, args ...any) {
	err := fmt.Errorf("%w: %s: %s", driver.ErrInvalid, g.pkg, fmt.Sprintf(why, args...))
	g.refused.CompareAndSwap(nil, &err)
}

// Refused returns the reason why every call fails, or nil.
func (g *Group) Refused() error {
	if err := g.refused.Load(); err != nil {
		return *err
	}
	return nil
}

// Usable returns Refused, or an error once the last Locker has closed.
func (g *Group) Usable() error {
	if err := g.Refused(); err != nil {
		return err
	}
	if g.Life.Closed() {
		return fmt.Errorf("%w: %s", driver.ErrClosed, g.pkg)
	}
	if g.Start != nil {
		g.start.Do(g.Start)
	}
	return nil
}

// Takes returns why no lock can be taken for a, or nil. A composed Backend has only mutexes, with
// leases of at most longest, as Options.LongestTTL says.
func (g *Group) Takes(a *driver.Acquisition, longest time.Duration) error {
	switch {
	case a.Mode.Kind != 0:
		return fmt.Errorf("%w: %s has no %s locks, only mutexes", driver.ErrInvalid, g.pkg, a.Mode.Kind)
	case a.TTL > longest:
		return fmt.Errorf("%w: a lease of %v; %s takes %v at most (Options.LongestTTL, the same in all processes)",
			driver.ErrInvalid, a.TTL, g.pkg, longest)
	}
	return nil
}

// Add makes b a member. It refuses a nil b, and a b that is a member already. It reports false if b
// is nil.
func (g *Group) Add(name string, b driver.Backend) bool {
	if b == nil {
		g.Refuse("the member %q is nil; give it a Backend, such as redislock.New returns", name)
		return false
	}
	if i := g.find(b); i >= 0 {
		g.Refuse("the members %q and %q are one Backend; give each a server of its own", g.names[i], name)
		return true
	}
	g.names, g.all = append(g.names, name), append(g.all, b)
	return true
}

// Keep makes the group attach and close b with its members, unless b is one of them. All members
// must have been added before.
func (g *Group) Keep(b driver.Backend) {
	if g.find(b) < 0 {
		g.all = append(g.all, b)
	}
}

func (g *Group) find(b driver.Backend) int {
	return slices.IndexFunc(g.all, func(m driver.Backend) bool { return Same(m, b) })
}

// Same reports whether a and b are one Backend. It reports false for a type that can't be compared.
func Same(a, b driver.Backend) bool {
	return reflect.TypeOf(a) == reflect.TypeOf(b) && reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}

// DurationOr returns the option d, or unset if d is not positive. It returns at most ten years, so
// that sums of durations don't overflow.
func DurationOr(d, unset time.Duration) time.Duration {
	if d <= 0 {
		d = unset
	}
	return min(d, 10*365*24*time.Hour)
}

// serverKey is the key at which a server without an ID of its own keeps one.
const serverKey = "lockgen.server"

// KeptID returns the ID that the server of record keeps. The first process that asks for it makes
// it. It returns "" if the server is configured to keep no values.
func KeptID(ctx context.Context, record driver.Agreement) (string, error) {
	id, err := record.CompareAndSwap(ctx, serverKey, "", rand.Text())
	if errors.Is(err, driver.ErrInvalid) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("the ID of its server, %q: %w", serverKey, err)
	}
	return id, nil
}

// Attach is [driver.Shared.Attach]: the first call attaches all members.
func (g *Group) Attach() {
	g.Life.Attach()
	g.attach.Do(func() {
		for _, m := range g.all {
			if s, ok := m.(driver.Shared); ok {
				s.Attach()
			}
		}
	})
}

// Close is [driver.Backend.Close]. The last Locker to close ends the Life, once its goroutines have
// ended or grace is over, and closes all members.
func (g *Group) Close(grace time.Duration) (err error) {
	last := g.Life.Close(func() {
		defer time.AfterFunc(grace, func() { g.Life.stop(driver.ErrClosed) }).Stop()
		g.Life.wait()
	})
	if last {
		for _, m := range g.all {
			err = errors.Join(err, m.Close())
		}
	}
	return err
}

// AtOnce is [driver.Bounded.AtOnce]: the least of all members.
func (g *Group) AtOnce() int {
	least := 256
	for _, m := range g.all[:len(g.names)] {
		if bounded, ok := m.(driver.Bounded); ok {
			least = min(least, bounded.AtOnce())
		}
	}
	return least
}

// Servers is [driver.Located.Servers]: those of all members.
func (g *Group) Servers() (all []string) {
	for _, m := range g.all {
		if l, ok := m.(driver.Located); ok {
			all = append(all, l.Servers()...)
		}
	}
	return all
}

// Wrapped is a member's lease as a lease of the composed Backend. It has the abilities of the
// member's lease.
type Wrapped struct {
	driver.Lease
	TTL time.Duration // the TTL of the acquisition
}

// Term implements [driver.ProvisionalLease].
func (w *Wrapped) Term() time.Duration {
	if p, ok := w.Lease.(driver.ProvisionalLease); ok {
		return p.Term()
	}
	return w.TTL
}

// Wanted implements [driver.WantedLease].
func (w *Wrapped) Wanted() bool {
	l, ok := w.Lease.(driver.WantedLease)
	return ok && l.Wanted()
}

// NotifyLoss implements [driver.LossNotifier].
func (w *Wrapped) NotifyLoss(look func()) {
	if n, ok := w.Lease.(driver.LossNotifier); ok {
		n.NotifyLoss(look)
	}
}

// Weight orders the members for key, the greatest first: each key has its own order. Adding a
// member does not change the order of the others (rendezvous hashing).
func Weight(member, key string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(member))
	_, _ = h.Write([]byte{0})
	_, _ = h.Write([]byte(key))
	w := h.Sum64() // FNV alone mixes the last bytes too little
	w = (w ^ w>>33) * 0xff51afd7ed558ccd
	w = (w ^ w>>33) * 0xc4ceb9fe1a85ec53
	return w ^ w>>33
}
