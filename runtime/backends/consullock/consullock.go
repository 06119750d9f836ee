package consullock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/lockgen/lockgen/runtime/driver"
)

// Options of a [Backend].
type Options struct {
	// LockDelay is for how long Consul keeps a key shut after the session that
	// held it has ended without a release: 15s unless set, 60s at most, none if
	// negative. Holders of this package do not need it, those of api.Lock may.
	LockDelay time.Duration
}

// Backend keeps locks in Consul's KV store. Make it with [New]; its methods may
// be called from any number of goroutines.
type Backend struct {
	client    *api.Client
	lockDelay time.Duration
	users     atomic.Int64 // Lockers that attached and did not close
	closed    sync.Once
	allowed   atomic.Pointer[ttlRange] // nil: not yet known
	verifying chan struct{}            // has room for as many as may verify leases at once

	ctx    context.Context // of what runs in the background
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu       sync.Mutex // guards the rest
	shut     bool
	sessions map[class]*session
	retired  map[*session]bool
	attempts map[string]*attempts     // by acquisition
	turns    map[string]turn          // by key
	offers   map[string]*offer        // by acquisition
	debts    map[string]*debt         // by acquisition
	paying   bool                     // one of them is being undone
	watches  map[string]*watch        // by key
	young    map[*lease]time.Duration // how old they are when they are looked at next
	looking  bool
	plainly  func() bool   // draws, see plainReleases
	confirms time.Duration // after the begin, see confirmAfter
}

// New returns a Backend that speaks through client, by its settings. It does no I/O, and never closes the client's connections.
func New(client *api.Client, options ...Options) *Backend {
	b := &Backend{
		client:    client,
		verifying: make(chan struct{}, verifiers),
		sessions:  map[class]*session{},
		retired:   map[*session]bool{},
		attempts:  map[string]*attempts{},
		turns:     map[string]turn{},
		offers:    map[string]*offer{},
		debts:     map[string]*debt{},
		young:     map[*lease]time.Duration{},
		confirms:  confirmAfter,
		plainly:   func() bool { return rand.N(plainReleases) == 0 },
		watches:   map[string]*watch{},
	}
	for _, o := range options {
		b.lockDelay = o.LockDelay
	}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	return b
}

// Attach implements [driver.Shared].
func (b *Backend) Attach() { b.users.Add(1) }

// closeWithin bounds how long Close waits for a server that does not answer.
const closeWithin = 500 * time.Millisecond

// Close implements [driver.Backend]: with the last Locker the sessions end, and
// with them whatever was not released. It takes half a second at most.
func (b *Backend) Close() error {
	if b.users.Add(-1) > 0 {
		return nil
	}
	b.closed.Do(func() {
		b.mu.Lock()
		b.shut = true
		all := b.living()
		b.mu.Unlock()
		b.cancel()
		ctx, cancel := context.WithTimeout(context.Background(), closeWithin)
		defer cancel()
		var ending sync.WaitGroup
		for _, s := range all {
			// One that is not answered ends by itself, a while later.
			ending.Go(func() { _ = s.destroy(ctx) })
		}
		ending.Wait()
		b.work.Wait()
	})
	return nil
}

// living returns the sessions that have not ended. b is locked.
func (b *Backend) living() (all []*session) {
	for _, s := range b.sessions {
		all = append(all, s)
	}
	for s := range b.retired {
		all = append(all, s)
	}
	return all
}

// background runs do beside the callers until Close.
func (b *Backend) background(do func(context.Context)) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.shut {
		return false
	}
	b.work.Go(func() { do(b.ctx) })
	return true
}

// check refuses what can't be right, before anything is sent.
func (b *Backend) check(a *driver.Acquisition) error {
	if err := checkKey(a.Key); err != nil {
		return err
	}
	if a.TTL < time.Millisecond || a.TTL > maxTTL {
		return outOfRange(a.TTL, ttlRange{defaultMinTTL, maxTTL})
	}
	if b.lockDelay > maxLockDelay {
		return fmt.Errorf("%w: Options.LockDelay is %v; Consul's longest is %v", driver.ErrInvalid, b.lockDelay, maxLockDelay)
	}
	return nil
}

// Acquire implements [driver.Backend].
func (b *Backend) Acquire(ctx context.Context, a *driver.Acquisition) (driver.Lease, error) {
	if err := b.check(a); err != nil {
		return nil, err
	}
	b.mu.Lock()
	shut, tried := b.shut, b.attempts[a.ID]
	undone := tried != nil && tried.undone
	if tried != nil && !undone {
		tried.since = time.Now() // see abandoned
	}
	b.mu.Unlock()
	switch {
	case shut:
		return nil, driver.ErrClosed
	case undone:
		return nil, errors.New("the acquisition was undone already")
	}
	if r, err := b.ttls(ctx); err != nil {
		return nil, err
	} else if a.TTL < r.min || a.TTL > r.max {
		return nil, outOfRange(a.TTL, r)
	}
	t := &taking{backend: b, acquisition: a, process: process(a.ID)}
	l, err := t.run(ctx)
	if err != nil {
		return nil, err // not a nil *lease in an interface
	}
	return l, nil
}

// Undo implements [driver.Backend].
func (b *Backend) Undo(ctx context.Context, a *driver.Acquisition) error {
	if checkKey(a.Key) != nil {
		return nil // an invalid key was never sent
	}
	sessions := b.dependsOn(a.ID)
	if err := b.undo(ctx, a); err != nil {
		b.owe(a, sessions)
		return err
	}
	b.settle(a.ID)
	return nil
}

func (b *Backend) undo(ctx context.Context, a *driver.Acquisition) error {
	if err := b.fence(ctx, a.ID); err != nil {
		return err
	}
	b.noOffer(a.ID)
	if a.Queue {
		b.noTurn(a.Key)
	}
	for {
		seen, err := b.look(ctx, a.Key)
		if err != nil {
			return err
		}
		if err = b.withdraw(ctx, seen, a); !errors.Is(err, errMoved) {
			return err
		}
	}
}
