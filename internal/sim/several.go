package sim

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/runtime/backends/failover"
	"github.com/lockgen/lockgen/runtime/backends/redislock"
	"github.com/lockgen/lockgen/runtime/driver"

	"github.com/lockgen/lockgen/internal/soak/client"
	"github.com/lockgen/lockgen/internal/soak/history"

	"github.com/lockgen/lockgen/internal/sim/vnet"
)

// longestTTL is longer than every lease of an episode with several servers, with the tenure that is
// added to it.
const longestTTL = 1200 * time.Millisecond

// several has the Redis servers of one Backend. A fault strikes the server that it names.
type several struct {
	servers []*Redis
	etcd    []modelled                       // further members of a quorum
	made    func(all []driver.Backend) whole // makes the Backend from one Backend for each server
	turn    chan struct{}                    // full while a fault excludes others of its sort

	mu      sync.Mutex      // guards the rest
	grants  failover.Status // the last status that a process has read
	since   time.Time       // when the epoch of grants was first read
	version uint64          // version of the membership for new processes
}

// whole is a Backend made of several Backends.
type whole interface {
	client.Backend
	driver.Shared
}

// hasSeveral reports whether an engine is made of several servers.
func hasSeveral(engine string) bool {
	return isQuorum(engine) || isFailover(engine) || isSharded(engine)
}

// newSeveral starts n servers.
func newSeveral(n int) *several {
	s := &several{turn: make(chan struct{}, 1)}
	for range n {
		s.servers = append(s.servers, NewRedis())
	}
	return s
}

// easy makes a plan with several servers about as much work as a plan with one.
func (p *Plan) easy() {
	p.TTL, p.Latency, p.Grain = 400*time.Millisecond, max(p.Latency, time.Millisecond), time.Millisecond
	p.Workers = min(p.Workers, 2)
	if !isSharded(p.Engine) {
		p.Keys = p.Keys[:1]
	}
}

// long makes a plan, and some of its holds, last long enough for the waits for old leases to end. The plan has few
// faults, so that some of them happen alone.
func (p *Plan) long() {
	p.Longest = 8
	p.Faults = p.Faults[:min(len(p.Faults), 3)]
	for i := range p.Faults {
		p.Faults[i].At *= 4
	}
}

// Connect returns the Backend of one process.
func (s *several) Connect(path *vnet.Path, timeout time.Duration) client.Backend {
	c := &closingAll{}
	var all []driver.Backend
	for _, r := range s.servers {
		one := r.Client(path, timeout)
		c.clients = append(c.clients, one)
		all = append(all, redislock.New(one))
	}
	for _, m := range s.etcd {
		all = append(all, m.Connect(path, timeout))
	}
	c.whole = s.made(all)
	return c
}

// closingAll is a Backend that also closes the clients of its members.
type closingAll struct {
	whole
	clients []*redis.Client
}

// Close implements [driver.Backend].
func (c *closingAll) Close() error {
	errs := []error{c.whole.Close()}
	for _, one := range c.clients {
		errs = append(errs, one.Close())
	}
	return errors.Join(errs...)
}

// all returns the servers, and those of etcd.
func (s *several) all() (all []engine) {
	for _, r := range s.servers {
		all = append(all, r)
	}
	for _, m := range s.etcd {
		all = append(all, m)
	}
	return all
}

func (s *several) each(f func(engine)) {
	for _, one := range s.all() {
		f(one)
	}
}

func (s *several) Pause()                       { s.each(engine.Pause) }
func (s *several) Resume()                      { s.each(engine.Resume) }
func (s *several) Stop()                        { s.each(engine.Stop) }
func (s *several) Start(empty bool)             { s.each(func(one engine) { one.Start(empty) }) }
func (s *several) Jump(d time.Duration)         { s.each(func(one engine) { one.Jump(d) }) }
func (s *several) Free(key string)              { s.each(func(one engine) { one.Free(key) }) }
func (s *several) Close()                       { s.each(engine.Close) }
func (s *several) Snapshot() []history.KeyState { return nil } // the data of a single server has no meaning

// Remains describes data that is left at any server.
func (s *several) Remains(locks []string) string {
	for i, r := range s.all() {
		if left := r.Remains(locks); left != "" {
			return fmt.Sprintf("server %d: %s", i, left)
		}
	}
	return ""
}

// server returns the Redis that f strikes: the only one, or one of several.
func (e *episode) server(f Fault) *Redis { return e.servers(f, 1)[0] }

// servers returns the n servers that f strikes.
func (e *episode) servers(f Fault, n int) (some []*Redis) {
	s, ok := e.engine.(*several)
	if !ok {
		return []*Redis{e.engine.(*Redis)}
	}
	for i := range n {
		some = append(some, s.servers[(f.N+i)%len(s.servers)])
	}
	return some
}

// struck returns the server that a fault strikes: the engine, or one of its servers.
func (e *episode) struck(f Fault) engine {
	if s, ok := e.engine.(*several); ok {
		return s.all()[f.N%len(s.all())]
	}
	return e.engine
}

// cutMembers disconnects a process from up to two servers.
func cutMembers(e *episode, f Fault, r *history.Fault) {
	p := e.current(f.Process)
	r.Proc = p.number
	some := e.servers(f, 1+f.N%2)
	for _, one := range some {
		one.part(p.number, true)
	}
	time.Sleep(f.For)
	for _, one := range some {
		one.part(p.number, false)
	}
}

// part refuses connections of the process with this number, or stops refusing them.
func (r *Redis) part(number int, parted bool) {
	r.set(func() { r.parted[number] = parted })
	if parted {
		r.cut(func(c *conn) bool { return c.flow.On(number) })
	}
}

// isParted reports whether the flow is of a process that is refused. The server is locked.
func (r *Redis) isParted(flow *vnet.Flow) bool {
	for number, parted := range r.parted {
		if parted && flow.On(number) {
			return true
		}
	}
	return false
}
