package consullock

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
	"github.com/lockgen/lockgen/runtime/internal/record"
)

// Options of a [Backend].
type Options struct {
	// LockDelay is for how long Consul keeps a key shut after the session that
	// held it has ended without a release: 15s unless set, none if negative.
	// More than 60s counts as 60s. Holders of this package do not need it, those of api.Lock may.
	LockDelay time.Duration
}

// Backend keeps locks in Consul's KV store. Make it with [New] or [Open]; its methods may
// be called from any number of goroutines.
type Backend struct {
	client    *api.Client
	invalid   error           // why the client can't be used, or nil
	servers   func() []string // asks the client once
	closeIdle func()          // closes the client's connections, if Open has made it, or nil
	lockDelay time.Duration
	life      *engine.Life
	sessions  *engine.Sessions[class, *session]
	hub       engine.Hub[engine.Place]
	turns     engine.KeyedMutex[engine.Place] // of attempts and undos: no undo deletes an entry that an attempt goes on with
	kinds     *record.Locks
	methods
	minTTL       atomic.Int64  // of a session at the server, in ns; 0: not yet known
	noteSessions sync.Map      // sessions of notes, by ttl
	watchSlots   chan struct{} // one for each key that is watched at once

	mu        sync.Mutex // guards the rest
	waiters   map[engine.Place]*waiter
	contended map[string]time.Time // by key: when another process was last seen in its queue
}

// New returns a Backend that speaks through client, by its settings. It does no I/O, and never closes the client's connections.
func New(client *api.Client, options ...Options) *Backend {
	b := &Backend{
		client:     client,
		servers:    sync.OnceValue(func() []string { return serversOf(client) }),
		life:       engine.NewLife(),
		watchSlots: make(chan struct{}, maxWatches),
		waiters:    map[engine.Place]*waiter{},
		contended:  map[string]time.Time{},
	}
	for _, o := range options {
		b.lockDelay = o.LockDelay
	}
	if client == nil {
		b.invalid = fmt.Errorf("%w: consullock.New needs a client that api.NewClient returned without an error, not nil", driver.ErrInvalid)
	}
	b.kinds = record.NewClockless(store{b}, b.life, b.watchRecord)
	b.methods = b.kinds.Methods()
	b.sessions = engine.NewSessions(b.life, func(c class, s *engine.Session) *session {
		return &session{Session: s, backend: b, class: c}
	}, b.undo)
	return b
}

// Servers implements [driver.Located].
func (b *Backend) Servers() []string { return b.servers() }

// serversOf returns the address of client, which tells it only in the errors of its requests. A request
// whose context has ended is not sent, though the transport is called.
func serversOf(client *api.Client) []string {
	if client == nil {
		return nil
	}
	ctx, cancel := context.WithDeadline(context.Background(), time.Time{})
	defer cancel()
	_, err := client.Status().LeaderWithQueryOptions((&api.QueryOptions{}).WithContext(ctx))
	if failed, ok := errors.AsType[*url.Error](err); ok {
		if u, err := url.Parse(failed.URL); err == nil {
			return []string{u.Host}
		}
	}
	return nil
}

// Attach implements [driver.Shared].
func (b *Backend) Attach() { b.life.Attach() }

// Close implements [driver.Backend]: with the last Locker the sessions end, and
// with them whatever was not released. It takes half a second at most.
func (b *Backend) Close() error {
	if last := b.life.Close(b.sessions.Close); last && b.closeIdle != nil {
		b.closeIdle()
	}
	return nil
}

// AtOnce implements [driver.Bounded]: each command needs a connection, of which an agent
// allows 200 to one address.
func (b *Backend) AtOnce() int { return 16 }

// Ping implements [driver.Pinger]: it asks for a session that is too short for Consul,
// which shows that there is a leader and that the token may write sessions, and makes
// none. It does not check rights to the keys of locks, which it can't know.
func (b *Backend) Ping(ctx context.Context) error {
	_, err := b.askLeastTTL(ctx)
	return err
}

// Acquire implements [driver.Backend].
func (b *Backend) Acquire(ctx context.Context, a *driver.Acquisition) (driver.Lease, error) {
	if err := checkKey(a.Key); err != nil {
		return nil, err
	}
	switch {
	case a.TTL < time.Millisecond || a.TTL > maxTTL:
		return nil, outOfRange(a.TTL, "session_ttl_min (10s unless set)")
	case a.Mode.Kind != 0:
		return b.kinds.Acquire(ctx, a)
	}
	if least, err := b.leastTTL(ctx); err != nil {
		return nil, err
	} else if a.TTL < least {
		return nil, outOfRange(a.TTL, least.String()+" (session_ttl_min)")
	}
	op := &acquireOp{backend: b, acquisition: a, place: engine.PlaceOf(a)}
	leave, err := b.turns.Enter(ctx, op.place)
	if err != nil {
		return nil, fmt.Errorf("waiting for an undo that is under way: %w", err)
	}
	defer leave()
	l, err := op.run(ctx)
	if err != nil {
		return nil, err // not a nil *lease in an interface
	}
	return l, nil
}

// Undo implements [driver.Backend].
func (b *Backend) Undo(ctx context.Context, a *driver.Acquisition) error {
	if checkKey(a.Key) != nil || b.invalid != nil {
		return nil // an invalid key was never sent
	}
	if a.Mode.Kind != 0 {
		return b.kinds.Undo(ctx, a)
	}
	return b.sessions.Undo(ctx, a)
}

// undo frees the lock if a holds it, and deletes the process's entry in the queue if no later
// acquisition needs it.
func (b *Backend) undo(ctx context.Context, a *driver.Acquisition) error {
	leave, err := b.turns.Enter(ctx, engine.PlaceOf(a))
	if err != nil {
		return err
	}
	defer leave()
	leaves := b.leaveQueue(a)
	if a.MayHaveRun {
		if err := b.putTombstone(ctx, a.ID); err != nil {
			return err
		}
	}
	for {
		v, err := b.readLock(ctx, a.Key)
		if err != nil {
			return err
		}
		var t ops
		if v.heldBy(a.ID) {
			t = freeOps(v.pair)
		}
		for _, e := range v.queue {
			if leaves && processOf(e) == engine.PlaceOf(a).Process {
				t = append(t, kv(api.KVDeleteCAS, api.KVTxnOp{Key: e.Key, Index: e.ModifyIndex}))
			}
		}
		if len(t) > 0 {
			_, err = b.write(ctx, t)
		}
		if !errors.Is(err, errChanged) {
			return err
		}
	}
}

// minTombstoneTTL is how long a request without an answer may still arrive: the least length of a
// tombstone.
const minTombstoneTTL = time.Minute

// putTombstone has each attempt of an acquisition that has not arrived yet fail: all are conditional
// on the absence of its tombstone.
func (b *Backend) putTombstone(ctx context.Context, id string) error {
	return b.putWithTTL(ctx, tombstoneOf(id), "", tombstoneTTL(time.Now()))
}

// tombstoneTTL returns the length of the session for the tombstones of this minute. It differs for each
// minute of an hour, and from those of notes, so that each minute has a session of its own: if each new
// tombstone renewed the same session, that would keep all earlier ones.
func tombstoneTTL(at time.Time) time.Duration {
	return minTombstoneTTL + time.Duration(1+at.Minute())*time.Millisecond
}

func outOfRange(ttl time.Duration, least string) error {
	return fmt.Errorf("%w: a ttl of %v; consullock takes from %s to %v", driver.ErrInvalid, ttl, least, maxTTL)
}

var ttlRefused = regexp.MustCompile(`Invalid Session TTL .*between \[(\S+)=`)

// leastTTL returns how long a session must last at least. The server is asked once.
func (b *Backend) leastTTL(ctx context.Context) (time.Duration, error) {
	if least := b.minTTL.Load(); least > 0 {
		return time.Duration(least), nil
	}
	least, err := b.askLeastTTL(ctx)
	if err == nil {
		b.minTTL.Store(int64(least))
	}
	return least, err
}

// askLeastTTL asks the server for a session that is too short. The refusal tells the least ttl.
func (b *Backend) askLeastTTL(ctx context.Context) (time.Duration, error) {
	ctx, cancel := b.requestContext(ctx)
	defer cancel()
	if b.invalid != nil {
		return 0, b.invalid
	}
	o := (&api.WriteOptions{}).WithContext(ctx)
	id, _, err := b.client.Session().CreateNoChecks(&api.SessionEntry{Name: "lockgen", TTL: "1ms"}, o)
	if err == nil { // nothing is too short for it
		_, _ = b.client.Session().Destroy(id, o)
		return time.Millisecond, nil
	}
	if found := ttlRefused.FindStringSubmatch(err.Error()); found != nil {
		return time.ParseDuration(found[1])
	}
	return 0, explained(engine.OrClosed(ctx, err))
}
