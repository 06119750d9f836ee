package record_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"sync"
	"time"

	"github.com/lockgen/lockgen/runtime/driver"
	"github.com/lockgen/lockgen/runtime/internal/engine"
	"github.com/lockgen/lockgen/runtime/internal/record"
)

var ids = regexp.MustCompile(`"id":"([^"]*)"`)

// server is an engine that loses, delays and repeats the requests to it.
type server struct {
	clockless bool // it has revisions, and no clock

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

// run executes w like the engine.
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

// checkLocked records an error for each party in value that has come back after its undo.
func (s *server) checkLocked(value string) {
	for _, m := range ids.FindAllStringSubmatch(value, -1) {
		if s.undone[m[1]] {
			s.errs = append(s.errs, m[1]+" has come back after its undo: "+value)
		}
	}
}

// replace is run for an engine without a clock; v is its present value. The caller holds the
// server's mutex.
func (s *server) replace(w record.Write, v kept) record.Answer {
	if rev, _ := w.Place.(int64); w.Look || v.rev != rev {
		return record.Answer{Value: v.text, Place: v.rev}
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
	return record.Answer{Done: true, Value: v.text, Place: v.rev}
}

// watch is the engine's [record.Watch]. Sometimes it fails, or calls tell late.
func (c *client) watch(ctx context.Context, key string, ready func(), tell func(string) int) error {
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
	life  *engine.Life // if the engine is clockless
	hub   engine.Hub[string]
	dead  chan struct{} // closed when the process stops for ever
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

// Swap sends w, and sends it again if there was no answer, like the client of an engine.
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
	case 3: // the network sends the request twice
		late()
	case 4: // the answer is slow
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
	s := c.hub.Subscribe(a.ID, nil)
	return s, nil
}
