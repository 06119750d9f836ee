package sim

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/runtime/backends/quorum"
	"github.com/lockgen/lockgen/runtime/backends/redislock"
	"github.com/lockgen/lockgen/runtime/driver"

	"github.com/lockgen/lockgen/internal/soak/client"
	"github.com/lockgen/lockgen/internal/soak/history"

	"github.com/lockgen/lockgen/internal/sim/vnet"
)

const (
	membersOfQuorum = 5
	// longestTTL is above every lease of an episode, with the time that is added for handing it on.
	longestTTL = 1200 * time.Millisecond
	// untilItVotes is how long a member that has started does not vote: INFO tells its age
	// in whole seconds, and redislock takes one off.
	untilItVotes = longestTTL + 2*time.Second
)

// members are the Redis masters of a quorum. A fault strikes the one that it names.
type members [membersOfQuorum]*Redis

// easy makes a plan cost about as much work with a quorum as others cost with one server.
func (p *Plan) easy() {
	p.TTL, p.Latency, p.Grain = 400*time.Millisecond, max(p.Latency, time.Millisecond), time.Millisecond
	p.Keys, p.Workers = p.Keys[:1], min(p.Workers, 2)
}

func newMembers() engine { return (*members)(NewMembers()) }

// NewMembers starts the servers of a quorum, which have been up for an hour.
func NewMembers() *[membersOfQuorum]*Redis {
	m := &[membersOfQuorum]*Redis{}
	for i := range m {
		m[i] = NewRedis()
		m[i].live(i, time.Now().Add(-time.Hour))
	}
	return m
}

// Connect returns a quorum for one process.
func (m *members) Connect(path *vnet.Path, timeout time.Duration) client.Backend {
	all := map[string]driver.Backend{}
	c := &closingAll{}
	for i, r := range m {
		one := r.Client(path, timeout)
		c.clients = append(c.clients, one)
		all[fmt.Sprint("m", i)] = redislock.New(one)
	}
	c.Backend = quorum.New(all, quorum.Options{LongestTTL: longestTTL, Timeout: 200 * time.Millisecond})
	return c
}

// closingAll closes the clients of the members along with the quorum.
type closingAll struct {
	*quorum.Backend
	clients []*redis.Client
}

// Close implements [driver.Backend].
func (c *closingAll) Close() error {
	errs := []error{c.Backend.Close()}
	for _, one := range c.clients {
		errs = append(errs, one.Close())
	}
	return errors.Join(errs...)
}

func (m *members) each(f func(*Redis)) {
	for _, r := range m {
		f(r)
	}
}

func (m *members) Pause()                       { m.each((*Redis).Pause) }
func (m *members) Resume()                      { m.each((*Redis).Resume) }
func (m *members) Stop()                        { m.each((*Redis).Stop) }
func (m *members) Start(empty bool)             { m.each(func(r *Redis) { r.Start(empty) }) }
func (m *members) Jump(d time.Duration)         { m.each(func(r *Redis) { r.Jump(d) }) }
func (m *members) Free(key string)              { m.each(func(r *Redis) { r.Free(key) }) }
func (m *members) Close()                       { m.each((*Redis).Close) }
func (m *members) Snapshot() []history.KeyState { return nil } // what one member has says nothing

// Remains says what is left at some member.
func (m *members) Remains(locks []string) string {
	for i, r := range m {
		if left := r.Remains(locks); left != "" {
			return fmt.Sprintf("member %d: %s", i, left)
		}
	}
	return ""
}

// server returns the Redis that f strikes: the only one, or a member.
func (e *episode) server(f Fault) *Redis { return e.servers(f, 1)[0] }

// servers returns n that f strikes.
func (e *episode) servers(f Fault, n int) (some []*Redis) {
	m, ok := e.engine.(*members)
	if !ok {
		return []*Redis{e.engine.(*Redis)}
	}
	for i := range n {
		some = append(some, m[(f.N+i)%membersOfQuorum])
	}
	return some
}

// struck returns what happens to servers happens to: the engine, or a member of it.
func (e *episode) struck(f Fault) engine {
	if isQuorum(e.plan.Engine) {
		return e.server(f)
	}
	return e.engine
}

func isQuorum(engine string) bool { return engine == "quorum" }

// emptyMembers restarts up to three members, without what they had.
func emptyMembers(e *episode, f Fault, r *history.Fault) {
	some := e.servers(f, 1+f.N/2%3)
	r.Detail = fmt.Sprintf("%d from member %d", len(some), f.N%membersOfQuorum)
	for _, one := range some {
		one.Stop()
	}
	time.Sleep(f.For)
	for _, one := range some {
		one.Start(true)
	}
	time.Sleep(untilItVotes)
}

// isForgotten reports whether v says that a majority forgot a lease: its holder hears of
// it, and nobody else may have the lock before the lease is over.
//
// Nor is it asked of a quorum that a lock never lies free while somebody waits: who has no
// majority pauses by chance.
func (r *Result) isForgotten(v history.Violation) bool {
	emptied := slices.ContainsFunc(r.History.Faults, func(f history.Fault) bool { return f.Kind == "empty-members" })
	return emptied && v.Invariant == "I2" && strings.HasPrefix(v.Text, "the engine took the lease away")
}

// cutMembers parts a process from up to two members.
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

// part refuses the process with this number from now on, or no more.
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

// live makes the server a member, of whose life INFO tells.
func (r *Redis) live(member int, began time.Time) {
	r.set(func() { r.member, r.began, r.lives = member, began, 1 })
}

// life is what INFO says of it, or "". The server is locked.
func (r *Redis) life() string {
	if r.lives == 0 {
		return ""
	}
	return fmt.Sprintf("run_id:member-%d-%d\r\nuptime_in_seconds:%d\r\n", r.member, r.lives, int(time.Since(r.began).Seconds()))
}
