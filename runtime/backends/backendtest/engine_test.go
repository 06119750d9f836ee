package backendtest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/backendtest"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/driver"
)

// engine is the server of the Backend on which the suite itself is tested. It keeps locks
// in memory. It adds what memlock does not need, because memlock has no network:
// tombstones, conflicts and limits. It is right unless it is a mutant.
type engine struct {
	mutant
	memory *memlock.Backend

	mu       sync.Mutex
	owners   map[string]*driver.Acquisition // by key
	undone   map[string]bool                // by acquisition
	occupied map[string]bool
	watched  map[string]int
	tokens   map[string]uint64 // by key; only mutants use it
	resent   map[string]int    // by acquisition; only mutants use it
}

const (
	ttl    = 400 * time.Millisecond
	minTTL = 20 * time.Millisecond
	maxTTL = time.Hour
	maxKey = 200
)

func newEngine(m mutant) *engine {
	return &engine{
		mutant: m, memory: memlock.New(),
		owners: map[string]*driver.Acquisition{}, undone: map[string]bool{}, occupied: map[string]bool{},
		watched: map[string]int{}, tokens: map[string]uint64{}, resent: map[string]int{},
	}
}

func (e *engine) harness() backendtest.Harness {
	return backendtest.Harness{
		Name:       "memory behind a network",
		Cannot:     backendtest.MutexesOnly("it simulates an engine that has only mutexes"),
		Open:       func(testing.TB) driver.Backend { return newRemote(e) },
		OpenFaulty: func(testing.TB) (driver.Backend, backendtest.Faults) { w := newRemote(e); return w, w },
		TTL:        ttl, Slack: 10 * time.Millisecond,
		MinTTL: minTTL, MaxTTL: maxTTL,
		MaxKey:    maxKey,
		Remove:    func(_ testing.TB, key string) { e.remove(key) },
		Occupy:    func(_ testing.TB, key string) { e.set(func() { e.occupied[key] = true }) },
		Leftovers: func(_ testing.TB, prefix string) []string { return e.leftovers(prefix) },
		Holds:     200,
	}
}

func (e *engine) set(change func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	change()
}

func (e *engine) acquire(a *driver.Acquisition) (driver.Lease, error) {
	if e.is(racesWithItself) && e.owner(a.Key) == nil {
		time.Sleep(time.Millisecond)
		e.remove(a.Key)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch owner := e.owners[a.Key]; {
	case e.occupied[a.Key] && !e.is(overwritesConflicts):
		return nil, fmt.Errorf("%w: %q is not a lock", lock.ErrConflict, a.Key)
	case e.undone[a.ID]:
		return nil, errors.New("the acquisition was undone")
	case owner != nil && owner.ID == a.ID && e.is(refusesResends):
		return nil, &driver.HeldError{}
	case owner != nil && client(owner) == client(a) && e.is(ownedByClient):
		owner.ID, a.ID = a.ID, owner.ID // any acquisition of the client counts as the owner
	}
	sent := *a
	sent.TTL = e.leaseOf(a.TTL)
	l, err := e.memory.Acquire(context.Background(), &sent)
	if err != nil {
		if e.is(saysHeldInWordsOnly) {
			return nil, errors.New("held by another owner")
		}
		return nil, err
	}
	e.owners[a.Key] = &sent
	e.resent[a.ID]++
	return e.numbered(l, &sent), nil
}

func client(a *driver.Acquisition) string {
	id, _, _ := strings.Cut(a.ID, ":")
	return id
}

func (e *engine) leaseOf(ttl time.Duration) time.Duration {
	switch {
	case e.is(neverExpires):
		return 1000 * ttl
	case e.is(expiresEarly):
		return ttl / 2
	}
	return ttl
}

// numbered returns l with the tokens that a mutant gives it.
func (e *engine) numbered(l driver.Lease, a *driver.Acquisition) driver.Lease {
	switch {
	case e.is(repeatsTokens):
		return tokens{l, 1, a.Tokens}
	case e.is(tokensOfClock):
		return tokens{l, uint64(time.Now().UnixMicro()), a.Tokens}
	case e.is(forgetsTokens):
		first := e.tokens[a.Key] + 1
		e.tokens[a.Key] += a.Tokens
		return tokens{l, first, a.Tokens}
	}
	return l
}

type tokens struct {
	driver.Lease
	first, n uint64
}

func (t tokens) Tokens() (first, n uint64) { return t.first, t.n }

func (t tokens) Release(ctx context.Context, _ uint64) error {
	first, n := t.Lease.Tokens()
	return t.Lease.Release(ctx, first+n-1)
}

func (e *engine) owner(key string) *driver.Acquisition {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.owners[key]
}

// remove frees key, whoever holds it.
func (e *engine) remove(key string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.free(key)
	delete(e.tokens, key)
}

func (e *engine) free(key string) {
	if a := e.owners[key]; a != nil {
		_ = e.memory.Undo(context.Background(), a)
		delete(e.owners, key)
	}
}

func (e *engine) release(l driver.Lease, a *driver.Acquisition, last uint64) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.is(releaseFreesAll):
		e.free(a.Key)
		return nil
	case e.is(releaseFreesNothing):
		return nil
	case e.is(countsResends):
		if e.resent[a.ID]--; e.resent[a.ID] > 0 {
			return nil
		}
	}
	if owner := e.owners[a.Key]; owner != nil && owner.ID == a.ID {
		delete(e.owners, a.Key)
	}
	err := l.Release(context.Background(), last)
	if e.is(releaseHidesLoss) {
		return nil
	}
	return err
}

func (e *engine) renew(l driver.Lease, a *driver.Acquisition, ttl time.Duration) error {
	if e.is(goroutinePerRenewal) {
		go time.Sleep(ttl / 6)
	}
	switch {
	case e.is(renewsNothing):
		return nil
	case e.is(renewalShortens):
		e.remove(a.Key)
		short := *a
		short.TTL = ttl
		_, err := e.acquire(&short)
		return err
	}
	err := l.Renew(context.Background(), ttl)
	if err == nil {
		return nil
	}
	switch {
	case e.is(renewalRecreates):
		if _, held := e.acquire(a); held != nil {
			return err
		}
		return nil
	case e.is(renewalHidesLoss):
		return nil
	}
	return err
}

func (e *engine) undo(a *driver.Acquisition) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if a.MayHaveRun && !e.is(leavesNoTombstone) {
		e.undone[a.ID] = true
	}
	owner := e.owners[a.Key]
	switch {
	case e.is(undoesNothing):
	case owner != nil && (owner.ID == a.ID || e.is(undoesOthers)):
		e.free(a.Key)
	}
	return nil
}

// leftovers returns the keys with prefix that are held or waited for.
func (e *engine) leftovers(prefix string) (kept []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for key := range e.owners {
		if strings.HasPrefix(key, prefix) {
			kept = append(kept, key)
		}
	}
	for key, n := range e.watched {
		if strings.HasPrefix(key, prefix) && n > 0 {
			kept = append(kept, "waiting for "+key)
		}
	}
	return kept
}
