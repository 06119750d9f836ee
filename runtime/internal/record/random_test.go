package record_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"regexp"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
	"github.com/lockgen/lockgen/runtime/internal/record"
)

var (
	seeds = flag.Int("seeds", 12, "how many random episodes TestRandom plays")
	first = flag.Uint64("seed", 1, "the seed of the first")
)

var ids = regexp.MustCompile(`"id":"([^"]*)"`)

// server is an engine that loses, delays and repeats what is sent to it.
type server struct {
	clockless bool // it has revisions, and tells no time

	mu      sync.Mutex
	changed chan struct{} // closed when a value changes
	rev     int64
	chance  *rand.Rand
	faults  bool
	values  map[string]kept
	undone  map[string]bool // by ID
	clients []*client
	errs    []string
}

type kept struct {
	rev   int64
	text  string
	until time.Time
}

// run does w, as the engine does it.
func (s *server) run(w record.Write) record.Answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	v := s.values[w.Key]
	if s.clockless {
		return s.replace(w, v)
	}
	if !now.Before(v.until) {
		v = kept{}
	}
	a := record.Answer{Value: v.text, Now: record.Time(now.UnixMicro())}
	if w.Look || record.Version(v.text) != w.Seen {
		return a
	}
	a.Done, a.Value = true, record.Resolve(w.Value, a.Now)
	s.values[w.Key] = kept{text: a.Value, until: now.Add(w.Lasts)}
	s.checkLocked(a.Value)
	for _, c := range s.clients {
		for _, id := range w.Granted {
			c.hub.Notify(id)
		}
		for _, id := range w.Wanted {
			c.locks.Wanted(id)
		}
	}
	return a
}

// checkLocked looks for who has come back.
func (s *server) checkLocked(value string) {
	for _, m := range ids.FindAllStringSubmatch(value, -1) {
		if s.undone[m[1]] {
			s.errs = append(s.errs, m[1]+" has come back after its undo: "+value)
		}
	}
}

// replace is run of an engine without a clock, which has v. The server's mutex is held.
func (s *server) replace(w record.Write, v kept) record.Answer {
	if w.Look || v.rev != w.Rev {
		return record.Answer{Value: v.text, Rev: v.rev}
	}
	s.rev++
	close(s.changed)
	s.changed = make(chan struct{})
	if w.Value == "" {
		delete(s.values, w.Key)
		return record.Answer{Done: true}
	}
	v = kept{rev: s.rev, text: record.ResolveRevision(w.Value, uint64(s.rev))}
	s.values[w.Key] = v
	s.checkLocked(v.text)
	return record.Answer{Done: true, Value: v.text, Rev: v.rev}
}

// watch is the engine's [record.Watch]. Now and then it fails, or tells late.
func (c *client) watch(ctx context.Context, key string, ready func(), tell func(string)) error {
	ready()
	for rev := int64(-1); ctx.Err() == nil; {
		c.mu.Lock()
		v, changed := c.values[key], c.changed
		c.mu.Unlock()
		if v.rev != rev {
			rev = v.rev
			engine.Pause(ctx, time.Duration(c.draw(3000))*time.Microsecond)
			tell(v.text)
		}
		select {
		case <-changed:
		case <-c.dead:
			<-ctx.Done()
		case <-ctx.Done():
		}
		if !c.fair() && c.draw(50) == 0 {
			return errNoAnswer
		}
	}
	return ctx.Err()
}

// draw returns a number below n.
func (s *server) draw(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.chance.IntN(n)
}

func (s *server) fair() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.faults
}

// client is a Backend of one process.
type client struct {
	*server
	locks *record.Locks
	life  *engine.Life // of a clockless one
	hub   engine.Hub[string]
	dead  chan struct{} // closed when the process hangs for ever
}

func (s *server) client() *client {
	c := &client{server: s, dead: make(chan struct{})}
	if c.locks = record.New(c); s.clockless {
		c.life = engine.NewLife()
		c.life.Attach()
		c.locks = record.NewClockless(c, c.life, c.watch)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clients = append(s.clients, c)
	return c
}

var errNoAnswer = fmt.Errorf("%w: no answer", driver.ErrIndeterminate)

// Swap sends w, and again if there was no answer, as an engine's client does.
func (c *client) Swap(ctx context.Context, w record.Write) (a record.Answer, err error) {
	unanswered := false
	for range 3 {
		a, err = c.send(ctx, w)
		unanswered = unanswered || err != nil
		if err == nil || ctx.Err() != nil {
			break
		}
	}
	a.MayHaveRun = unanswered
	return a, err
}

func (c *client) send(ctx context.Context, w record.Write) (record.Answer, error) {
	select {
	case <-c.dead:
		<-ctx.Done()
		return record.Answer{}, errNoAnswer
	default:
	}
	late := func() {
		time.AfterFunc(time.Duration(c.draw(4000))*time.Millisecond, func() { c.run(w) })
	}
	silence := func() (record.Answer, error) {
		engine.Pause(ctx, 200*time.Millisecond)
		return record.Answer{}, errNoAnswer
	}
	if !engine.Pause(ctx, time.Duration(c.draw(2000))*time.Microsecond) {
		return record.Answer{}, errNoAnswer
	}
	if c.fair() {
		return c.run(w), nil
	}
	switch c.draw(20) {
	case 0: // the request is lost
		return silence()
	case 1: // the answer is lost
		c.run(w)
		return silence()
	case 2: // the request arrives late
		late()
		return silence()
	case 3: // it is sent twice on the way
		late()
	case 4: // the answer takes long
		a := c.run(w)
		engine.Pause(ctx, time.Duration(c.draw(700))*time.Millisecond)
		if ctx.Err() != nil {
			return record.Answer{}, errNoAnswer
		}
		return a, nil
	}
	return c.run(w), nil
}

func (c *client) Kinds() driver.Kind {
	return driver.Read | driver.Write | driver.Fair | driver.Permits
}
func (c *client) Acquire(ctx context.Context, a *driver.Acquisition) (driver.Lease, error) {
	return c.locks.Acquire(ctx, a)
}
func (c *client) Undo(ctx context.Context, a *driver.Acquisition) error {
	err := c.locks.Undo(ctx, a)
	if err == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.undone[a.ID] = true
	}
	return err
}
func (c *client) Close() error {
	if c.life != nil {
		c.life.Close(nil)
	}
	return nil
}
func (c *client) Subscribe(ctx context.Context, a *driver.Acquisition) (driver.Subscription, error) {
	if c.clockless {
		return c.locks.Subscribe(ctx, a)
	}
	s, _ := c.hub.Subscribe(a.ID, nil)
	return s, nil
}

// section is who is inside one key by its own reckoning.
type section struct {
	t      *testing.T
	mu     sync.Mutex
	inside map[int]visit
	next   int
	token  uint64 // the highest of those that wrote
	visits int
}

type visit struct {
	ctx    context.Context
	policy *lock.Policy
}

func (s *section) enter(ctx context.Context, p *lock.Policy) (leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if lock.Check(ctx) != nil {
		return func() {}
	}
	taken := max(p.Weight, 1)
	for _, v := range s.inside {
		if lock.Check(v.ctx) != nil {
			continue
		}
		taken += max(v.policy.Weight, 1)
		if p.Permits == 0 && !(p.Read && v.policy.Read) {
			s.t.Errorf("%+v is inside beside %+v", p, v.policy)
		}
	}
	if p.Permits > 0 && taken > p.Permits {
		s.t.Errorf("%d of %d permits are taken", taken, p.Permits)
	}
	if token, ok := lock.Token(ctx); !p.Read && p.Permits == 0 {
		if !ok || token <= s.token {
			s.t.Errorf("token %d after %d", token, s.token)
		}
		s.token = token
	} else if p.Read && token < s.token {
		s.t.Errorf("a reader has token %d after a writer's %d", token, s.token)
	}
	s.visits++
	s.next++
	n := s.next
	s.inside[n] = visit{ctx, p}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.inside, n)
	}
}

// Whatever is lost, late or repeated on the way, and whoever dies: who is inside is so by
// right, tokens rise, nobody is forgotten, and nothing stays behind.
func TestRandom(t *testing.T) { random(t, false) }

// So it is at an engine that tells no time.
func TestRandomClockless(t *testing.T) { random(t, true) }

func random(t *testing.T, clockless bool) {
	for i := range *seeds {
		seed := *first + uint64(i)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { episode(t, seed, clockless) })
		})
	}
}

func episode(t *testing.T, seed uint64, clockless bool) {
	s := &server{
		chance: rand.New(rand.NewPCG(seed, 1)), faults: true, values: map[string]kept{}, undone: map[string]bool{},
		clockless: clockless, changed: make(chan struct{}),
	}
	families := [][]*lock.Policy{
		{{Read: true}, {Read: true}, {Write: true}},
		{{Fair: true}},
		{{Permits: 3}, {Permits: 3, Weight: 2}},
	}
	policies := families[seed%3]
	area := &section{t: t, inside: map[int]visit{}}
	var all sync.WaitGroup
	var lockers []*lock.Locker
	for range 4 {
		c := s.client()
		l := lock.New(c, nil)
		lockers = append(lockers, l)
		if s.draw(3) == 0 {
			time.AfterFunc(time.Duration(s.draw(8000))*time.Millisecond, func() { close(c.dead) })
		}
		for range 3 {
			all.Go(func() {
				for begin := time.Now(); time.Since(begin) < 10*time.Second; {
					use(s, l, policies, area)
				}
			})
		}
	}
	all.Wait()
	s.mu.Lock()
	s.faults = false
	s.mu.Unlock()
	time.Sleep(10 * time.Second) // the leases of the dead end
	last := lock.New(s.client(), nil)
	for _, p := range policies { // where nobody has counted them they end now
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		require.NoError(t, last.Do(ctx, p, "k", func(context.Context) error { return nil }))
		cancel()
	}
	before := area.visits
	for i, l := range lockers {
		select {
		case <-s.clients[i].dead:
		default:
			for range 3 {
				all.Go(func() {
					for begin := time.Now(); time.Since(begin) < 3*time.Second; {
						p := policies[s.draw(len(policies))]
						require.NoError(t, l.Do(t.Context(), p, "k", func(ctx context.Context) error {
							defer area.enter(ctx, p)()
							time.Sleep(10 * time.Millisecond)
							return nil
						}))
					}
				})
			}
		}
	}
	all.Wait()
	if n := len(lockers) - dead(s); n > 0 {
		require.Greater(t, area.visits-before, 100, "the lock is idle while it is waited for")
	}
	for _, p := range policies {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		require.NoError(t, last.Do(ctx, p, "k", func(context.Context) error { return nil }))
		cancel()
	}
	for _, l := range append(lockers, last) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		_ = l.Close(ctx)
		cancel()
	}
	time.Sleep(2 * time.Minute)
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Empty(t, s.errs)
	for key, v := range s.values {
		require.False(t, time.Now().Before(v.until), "%s: %s", key, v.text)
		require.True(t, record.Idle(v.text), "%s: %s", key, v.text)
	}
}

func dead(s *server) (n int) {
	for _, c := range s.clients {
		select {
		case <-c.dead:
			n++
		default:
		}
	}
	return n
}

// use takes the lock once, or gives up.
func use(s *server, l *lock.Locker, policies []*lock.Policy, area *section) {
	p := *policies[s.draw(len(policies))]
	p.TTL = time.Duration(300+s.draw(3000)) * time.Millisecond
	patience := 4 * time.Second
	if s.draw(4) == 0 {
		patience = time.Duration(s.draw(800)) * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ctx, held, err := l.Acquire(ctx, &p, "k")
	if err != nil {
		if !errors.Is(err, lock.ErrNotAcquired) && !errors.Is(err, lock.ErrIndeterminate) && !errors.Is(err, lock.ErrUnavailable) {
			area.t.Errorf("Acquire: %v", err)
		}
		time.Sleep(time.Duration(1+s.draw(20)) * time.Millisecond)
		return
	}
	leave := area.enter(ctx, &p)
	pause := time.Duration(s.draw(50)) * time.Millisecond
	if s.draw(10) == 0 {
		pause = time.Duration(s.draw(3000)) * time.Millisecond
	}
	time.Sleep(pause)
	if p.Write && s.draw(3) == 0 {
		down, cancel := context.WithTimeout(ctx, time.Second)
		leave() // readers may come in before the answer does
		if held.Downgrade(down) == nil {
			p := p
			p.Read, p.Write = true, false
			leave = area.enter(ctx, &p)
			time.Sleep(time.Duration(s.draw(30)) * time.Millisecond)
		}
		cancel()
	}
	leave()
	held.Release(nil)
}
