package failover_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/failover"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/driver"
)

var errDead = errors.New("connection refused")

// server is a memory engine behind a network. It can die, hang and restart empty.
type server struct {
	mu     sync.Mutex
	memory *memlock.Backend
	dead   bool
	hung   bool
	less   uint64   // subtracted from memory's tokens, since revisions start low
	undone []string // keys whose place in the queue was given up
}

// roundTrip is about how long a call to a server takes.
const roundTrip = 2 * time.Millisecond

func newServer() *server { return &server{memory: memlock.New()} }

func (s *server) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// restart makes s forget all locks and end its faults.
func (s *server) restart() {
	s.set(func() { s.memory, s.dead, s.hung = memlock.New(), false, false })
}

// link is the connection of one process to a server.
type link struct {
	*server
	cut atomic.Bool
}

// reach returns the server's memory after a delay. If the server hangs or the link is cut, reach waits for the
// end of ctx.
func (l *link) reach(ctx context.Context) (*memlock.Backend, error) {
	l.mu.Lock()
	hung, dead, memory := l.hung || l.cut.Load(), l.dead, l.memory
	l.mu.Unlock()
	switch {
	case dead:
		return nil, errDead
	case hung:
		<-ctx.Done()
		return nil, fmt.Errorf("%w: %w", driver.ErrIndeterminate, ctx.Err())
	}
	select {
	case <-time.After(roundTrip/2 + rand.N(roundTrip)):
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", driver.ErrIndeterminate, ctx.Err())
	}
	return memory, nil
}

func (l *link) Acquire(ctx context.Context, a *driver.Acquisition) (driver.Lease, error) {
	sent := driver.Now()
	memory, err := l.reach(ctx)
	if err != nil {
		return nil, err
	}
	granted, err := memory.Acquire(ctx, a)
	if err != nil {
		return nil, err
	}
	time.Sleep(roundTrip / 2)
	l.mu.Lock()
	defer l.mu.Unlock()
	return &held{Lease: granted, link: l, memory: memory, less: l.less, until: sent.Add(a.TTL)}, nil
}

func (l *link) Undo(ctx context.Context, a *driver.Acquisition) error {
	memory, err := l.reach(ctx)
	if err != nil {
		return err
	}
	l.set(func() {
		if a.Queue {
			l.undone = append(l.undone, a.Key)
		}
	})
	return memory.Undo(ctx, a)
}

func (l *link) Subscribe(ctx context.Context, a *driver.Acquisition) (driver.Subscription, error) {
	memory, err := l.reach(ctx)
	if err != nil {
		return nil, err
	}
	return memory.Subscribe(ctx, a)
}

func (l *link) Ping(ctx context.Context) error {
	_, err := l.reach(ctx)
	return err
}

func (l *link) CompareAndSwap(ctx context.Context, key, old, next string) (string, error) {
	memory, err := l.reach(ctx)
	if err != nil {
		return "", err
	}
	now, err := memory.CompareAndSwap(ctx, key, old, next)
	time.Sleep(roundTrip / 2)
	return now, err
}

func (l *link) Close() error { return nil }

// held is a lease that a server granted. It ends when the server restarts.
type held struct {
	driver.Lease
	link   *link
	memory *memlock.Backend
	less   uint64
	mu     sync.Mutex
	until  driver.Instant
}

func (h *held) Deadline() driver.Instant {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.until
}

func (h *held) Tokens() (first, n uint64) {
	first, n = h.Lease.Tokens()
	return first - h.less, n
}

func (h *held) reach(ctx context.Context) error {
	memory, err := h.link.reach(ctx)
	if err == nil && memory != h.memory {
		return driver.ErrLost
	}
	return err
}

func (h *held) Renew(ctx context.Context, ttl time.Duration) error {
	sent := driver.Now()
	err := h.reach(ctx)
	if err == nil {
		err = h.Lease.Renew(ctx, ttl)
	}
	if err == nil {
		h.mu.Lock()
		h.until = sent.Add(ttl)
		h.mu.Unlock()
	}
	return err
}

func (h *held) Release(ctx context.Context, last uint64) error {
	if err := h.reach(ctx); err != nil {
		return err
	}
	return h.Lease.Release(ctx, last+h.less)
}

// world has two engines, the engine of the record, and processes that lock keys.
type world struct {
	t                       *testing.T
	primary, standby, third *server
	processes               []*process

	mu     sync.Mutex
	inside map[string]map[context.Context]string // by key: the holders that have not left, and since when
	tokens map[string]uint64
	holds  int
	last   time.Time // when a call last got a lock
	stop   chan struct{}
	work   sync.WaitGroup
}

// process is a Locker with its own links to all servers.
type process struct {
	*lock.Locker
	backend                  *failover.Backend
	primary, standby, record *link
}

var quick = failover.Options{
	LongestTTL: 3 * time.Second, Silence: 2 * time.Second, Probe: 200 * time.Millisecond, Timeout: 200 * time.Millisecond,
}

// drain is how long a switch waits with the options quick.
const drain = (3 + 2) * time.Second * 51 / 50

func newWorld(t *testing.T) *world {
	w := &world{t: t, primary: newServer(), standby: newServer(), third: newServer(), stop: make(chan struct{}),
		inside: map[string]map[context.Context]string{}, tokens: map[string]uint64{}}
	return w
}

// join starts a process.
func (w *world) join() *process {
	p := &process{primary: &link{server: w.primary}, standby: &link{server: w.standby}, record: &link{server: w.third}}
	o := quick
	o.Record = p.record
	p.backend = failover.New(p.primary, []driver.Backend{p.standby}, o)
	p.Locker = lock.New(p.backend, nil)
	w.processes = append(w.processes, p)
	return p
}

// startWorld returns a world with n processes, whose record has been written.
func startWorld(t *testing.T, n int) *world {
	w := newWorld(t)
	for range n {
		w.join()
	}
	if err := w.processes[0].backend.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	return w
}

// end ends the load and all processes.
func (w *world) end() {
	close(w.stop)
	w.work.Wait()
	for _, p := range w.processes {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		_ = p.Close(ctx)
		cancel()
	}
	time.Sleep(time.Minute) // for the undos
}

// load has goroutines of p lock the keys for long and short times.
func (w *world) load(p *process, workers, keys int) {
	for range workers {
		w.work.Go(func() {
			for {
				select {
				case <-w.stop:
					return
				default:
				}
				w.holdKey(p, fmt.Sprintf("key %d", rand.N(keys)))
				time.Sleep(rand.N(100 * time.Millisecond))
			}
		})
	}
}

// holdKey holds a key for a while, and checks that nobody else holds it.
func (w *world) holdKey(p *process, key string) {
	ttl := time.Second + rand.N(2*time.Second)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	ctx, h, err := p.Acquire(ctx, &lock.Policy{TTL: ttl}, key)
	if err != nil {
		time.Sleep(rand.N(200 * time.Millisecond))
		return
	}
	token, _ := lock.Token(ctx)
	w.enter(ctx, key, token)
	stays := rand.N(100 * time.Millisecond)
	if rand.N(20) == 0 {
		stays = rand.N(6 * time.Second) // long enough for a renewal
	}
	select {
	case <-time.After(stays):
	case <-ctx.Done():
	}
	if lock.Check(ctx) == nil {
		w.mu.Lock()
		w.holds++
		w.mu.Unlock()
	}
	w.mu.Lock()
	delete(w.inside[key], ctx)
	w.mu.Unlock()
	h.Release(nil)
}

func (w *world) enter(ctx context.Context, key string, token uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if lock.Check(ctx) != nil {
		return
	}
	for other, since := range w.inside[key] {
		if lock.Check(other) == nil {
			w.t.Errorf("%s: two are inside at the same time, one of them since %s", key, since)
		}
	}
	if token <= w.tokens[key] {
		w.t.Errorf("%s: token %d after token %d", key, token, w.tokens[key])
	}
	w.tokens[key], w.last = token, time.Now()
	if w.inside[key] == nil {
		w.inside[key] = map[context.Context]string{}
	}
	w.inside[key][ctx] = time.Now().Format(time.StampMicro)
}

// refused makes calls of p while nobody can be granted a lock. No call may report that the key is held.
func (w *world) refused(p *process, key string) {
	w.t.Helper()
	for _, one := range []*lock.Policy{{Try: true}, {Wait: 300 * time.Millisecond}, {Try: true, Skip: true}} {
		one.TTL = time.Second
		err := p.Do(w.t.Context(), one, key, func(context.Context) error { return nil })
		if !errors.Is(err, lock.ErrUnavailable) || errors.Is(err, lock.ErrNotAcquired) {
			w.t.Errorf("Do while nobody can be granted a lock: %v", err)
		}
	}
}

// granting waits until p reads in the record that engine grants.
func (w *world) granting(p *process, engine string, within time.Duration) {
	w.t.Helper()
	for begin := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		s, err := p.backend.Status(w.t.Context())
		switch {
		case err == nil && s.Engine == engine && s.Open:
			return
		case time.Since(begin) > within:
			w.t.Fatalf("after %v %q does not grant; the record is %+v, %v", within, engine, s, err)
		}
	}
}
