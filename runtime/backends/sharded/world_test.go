package sharded_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/backends/sharded"
	"github.com/lockgen/lockgen/runtime/driver"
)

// server is a memory engine behind a network. It can die and restart empty.
type server struct {
	mu     sync.Mutex
	memory *memlock.Backend
	dead   bool
	cut    map[int]bool // processes that can't reach it
	blind  map[int]bool // processes that can't read its record
	mute   map[int]bool // processes that can't write its record
}

func (s *server) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// link is the connection of one process to a server.
type link struct {
	*server
	process int
}

var errCut = errors.New("connection refused")

func (l link) reach() (*memlock.Backend, error) {
	time.Sleep(time.Millisecond + rand.N(2*time.Millisecond))
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead || l.cut[l.process] {
		return nil, errCut
	}
	return l.memory, nil
}

func (l link) Acquire(ctx context.Context, a *driver.Acquisition) (driver.Lease, error) {
	memory, err := l.reach()
	if err != nil {
		return nil, err
	}
	granted, err := memory.Acquire(ctx, a)
	if err != nil {
		return nil, err
	}
	return &held{granted, l, memory}, nil
}

func (l link) Undo(ctx context.Context, a *driver.Acquisition) error {
	memory, err := l.reach()
	if err != nil {
		return err
	}
	return memory.Undo(ctx, a)
}

func (l link) CompareAndSwap(ctx context.Context, key, old, next string) (string, error) {
	memory, err := l.reach()
	l.set(func() {
		if l.blind[l.process] || l.mute[l.process] && old != next {
			err = errCut
		}
	})
	if err != nil {
		return "", err
	}
	return memory.CompareAndSwap(ctx, key, old, next)
}

func (l link) RaiseToken(context.Context, driver.Lease, uint64) error { return nil }

func (l link) Close() error { return nil }

// held is a lease that a server granted. It ends when the server restarts.
type held struct {
	driver.Lease
	link   link
	memory *memlock.Backend
}

func (h *held) reach() error {
	memory, err := h.link.reach()
	if err == nil && memory != h.memory {
		err = driver.ErrLost
	}
	return err
}

func (h *held) Renew(ctx context.Context, ttl time.Duration) error {
	if err := h.reach(); err != nil {
		return err
	}
	return h.Lease.Renew(ctx, ttl)
}

func (h *held) Release(ctx context.Context, last uint64) error {
	if err := h.reach(); err != nil {
		return err
	}
	return h.Lease.Release(ctx, last)
}

// world has servers, and processes that lock keys there.
type world struct {
	t       *testing.T
	servers map[string]*server
	number  int // of the last process

	mu     sync.Mutex
	inside map[string][]context.Context
	tokens map[string]uint64
	holds  int
}

var quick = sharded.Options{
	LongestTTL: 3 * time.Second, Silence: 2 * time.Second, Probe: 200 * time.Millisecond, Timeout: 200 * time.Millisecond,
}

const drain = (3 + 2) * time.Second * 51 / 50

func newWorld(t *testing.T, names string) *world {
	w := &world{t: t, servers: map[string]*server{}, inside: map[string][]context.Context{}, tokens: map[string]uint64{}}
	for _, name := range names {
		w.servers[string(name)] = &server{memory: memlock.New(), cut: map[int]bool{}, blind: map[int]bool{}, mute: map[int]bool{}}
	}
	return w
}

// process is a Locker under load, with a version of the membership.
type process struct {
	*lock.Locker
	backend *sharded.Backend
	number  int
	stop    chan struct{}
	work    sync.WaitGroup
}

// join returns a process with these members and these leaving members, one letter each.
func (w *world) join(version uint64, names, leaving string) *process {
	w.number++
	members, o := map[string]driver.Backend{}, quick
	for _, name := range names {
		members[string(name)] = link{w.servers[string(name)], w.number}
	}
	o.Version, o.Leaving = version, map[string]driver.Backend{}
	for _, name := range leaving {
		o.Leaving[string(name)] = link{w.servers[string(name)], w.number}
	}
	p := &process{backend: sharded.New(members, o), number: w.number, stop: make(chan struct{})}
	p.Locker = lock.New(p.backend, nil)
	return p
}

// started writes the record with p, and returns p.
func (w *world) started(p *process) *process {
	if err := p.backend.Begin(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	return p
}

// refused makes calls of p while nobody can be granted key. No call may report that the key is held.
func (w *world) refused(p *process, key string) {
	w.t.Helper()
	for _, one := range []*lock.Policy{{Try: true}, {Wait: 300 * time.Millisecond}, {Try: true, Skip: true}} {
		one.TTL = time.Second
		err := p.Do(w.t.Context(), one, key, func(context.Context) error { return nil })
		if !errors.Is(err, lock.ErrUnavailable) || errors.Is(err, lock.ErrNotAcquired) {
			w.t.Errorf("Do while nobody can be granted %s: %v", key, err)
		}
	}
}

func (p *process) end() {
	close(p.stop)
	p.work.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = p.Close(ctx)
}

// held returns how many holds there were.
func (w *world) held() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.holds
}

// load has p lock keys for long and short times.
func (w *world) load(p *process) *process {
	for range 4 {
		p.work.Go(func() {
			for {
				select {
				case <-p.stop:
					return
				default:
				}
				w.hold(p, fmt.Sprintf("key %d", rand.N(12)))
				time.Sleep(rand.N(50 * time.Millisecond))
			}
		})
	}
	return p
}

// hold has p hold a key for a while, and checks that nobody else holds it.
func (w *world) hold(p *process, key string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, h, err := p.Acquire(ctx, &lock.Policy{TTL: time.Second + rand.N(2*time.Second)}, key)
	if err != nil {
		time.Sleep(rand.N(100 * time.Millisecond))
		return
	}
	inside := h.Context()
	w.mu.Lock()
	if lock.Check(inside) == nil {
		for _, other := range w.inside[key] {
			if lock.Check(other) == nil {
				w.t.Errorf("%s: two are inside at the same time", key)
			}
		}
		if h.Token() <= w.tokens[key] {
			w.t.Errorf("%s: token %d after token %d", key, h.Token(), w.tokens[key])
		}
		w.tokens[key], w.inside[key] = h.Token(), []context.Context{inside}
		w.holds++
	}
	w.mu.Unlock()
	stays := rand.N(100 * time.Millisecond)
	if rand.N(20) == 0 {
		stays = rand.N(6 * time.Second) // long enough for a renewal
	}
	select {
	case <-time.After(stays):
	case <-inside.Done():
	}
	h.Release(nil)
}
