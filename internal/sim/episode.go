package sim

import (
	"fmt"
	"hash/fnv"
	"slices"
	"sync"
	"time"

	"github.com/lockgen/lockgen/internal/soak/client"
	"github.com/lockgen/lockgen/internal/soak/history"

	"github.com/lockgen/lockgen/internal/sim/vnet"
)

const (
	sampleEvery = 25 * time.Millisecond
	// acquirable is the time in which a new process must get each key: the lease of a dead
	// holder, a turn for each process that died in the queue, and a poll.
	acquirable = 5 * time.Second
	// settled is how long goroutines and connections may outlive a Locker's Close: as long as
	// a client waits for an answer.
	settled = 10 * time.Second
)

// episode is one running episode.
type episode struct {
	plan     *Plan
	engine   engine
	register *register
	begin    time.Time

	mu         sync.Mutex // guards the rest
	now        []*process // the current process of each ProcessPlan
	all        []*process
	numbers    int
	records    []history.Record
	faults     []history.Fault
	violations []history.Violation
	over       bool // nothing is recorded any more
}

// process is one process of an episode.
type process struct {
	*client.Process
	number int
	path   *vnet.Path
	ended  chan struct{} // closed when the process has ended by itself or was killed

	mu      sync.Mutex // guards the rest
	killed  bool
	closing bool
	running chan struct{} // closed while it runs
}

// Result is the result of an episode.
type Result struct {
	Plan       *Plan
	History    *history.History
	Violations []history.Violation
	Hash       uint64 // of all records, in order
	Virtual    time.Duration
	Sections   int
	Bounded    int // number of faults for which the time without a grant was checked
}

func clock() int64 { return time.Now().UnixNano() }

// play runs the episode of the plan in the bubble of its caller.
func (p *Plan) play() *Result {
	SeedChance(p.Seed)
	e := &episode{plan: p, register: newRegister(p), begin: time.Now()}
	e.engine = e.newEngine()
	e.now = make([]*process, len(p.Processes))
	for i := range p.Processes {
		e.spawn(i)
	}
	stop := make(chan struct{})
	samples := make(chan []history.Sample)
	go func() { samples <- e.sample(stop) }()
	e.torment()
	e.heal()
	e.drain()
	time.Sleep(3 * sampleEvery) // for the last samples
	close(stop)
	taken := <-samples
	e.probe()
	e.settle()
	return e.result(taken)
}

// spawn starts process i of the plan.
func (e *episode) spawn(i int) {
	plan := e.plan.Processes[i]
	e.mu.Lock()
	e.numbers++
	p := &process{number: e.numbers, ended: make(chan struct{}), running: make(chan struct{})}
	e.mu.Unlock()
	close(p.running)
	p.path = vnet.NewPath(e.plan.Latency, e.plan.Seed, p.number)
	started, err := client.Start(client.Config{
		Proc: p.number, Keys: e.plan.Keys, LockKinds: e.plan.LockKinds, Sticky: e.plan.Sticky, Extras: e.plan.Extras, Seed: e.plan.Seed, Workers: e.plan.Workers,
		TTL: e.plan.TTL, HandOff: plan.HandOff, Grain: e.plan.Grain, Longest: e.plan.Longest, NoFaults: len(e.plan.Faults) == 0,
	}, client.World{
		Backend:  e.engine.Connect(p.path, plan.ReadTimeout),
		Register: func() (client.Register, error) { return e.register.conn(p), nil },
		Out:      history.NewRecorder(p.number, clock, func(r history.Record) error { e.note(p, r); return nil }),
		Gate:     p.gate,
	})
	if err != nil {
		panic(err) // the register is in memory
	}
	p.Process = started
	e.mu.Lock()
	defer e.mu.Unlock()
	e.now[i] = p
	e.all = append(e.all, p)
}

// note keeps a record, unless its process is dead.
func (e *episode) note(p *process, r history.Record) {
	if p.isKilled() {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.over {
		e.records = append(e.records, r)
	}
}

func (e *episode) current(i int) *process {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.now[i]
}

// violate records a violation that was found during the episode.
func (e *episode) violate(invariant, key, format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.violations = append(e.violations, history.Violation{Invariant: invariant, Key: key, At: clock(), Text: fmt.Sprintf(format, args...)})
}

// torment makes the faults of the plan happen, each at its time, and returns when all are
// over.
func (e *episode) torment() {
	var striking sync.WaitGroup
	for _, f := range e.plan.Faults {
		striking.Go(func() {
			time.Sleep(time.Until(e.begin.Add(f.At)))
			e.strike(f)
		})
	}
	time.Sleep(time.Until(e.begin.Add(e.plan.Heal)))
	striking.Wait()
}

// heal ends all effects of the faults.
func (e *episode) heal() {
	e.engine.Resume()
	for i := range e.plan.Processes {
		p := e.current(i)
		p.path.Heal()
		p.resume()
	}
}

// drain lets all processes finish.
func (e *episode) drain() {
	var draining sync.WaitGroup
	for _, p := range e.all {
		draining.Go(func() {
			if p.isEnding() {
				<-p.ended
				return
			}
			closed := p.Drain()
			if closed.Ret == 0 {
				e.violate("I8", "", "process %d: %s\n%s", p.number, closed.Note, stacks())
				p.kill(false)
				return
			}
			p.note(e, closed)
		})
	}
	draining.Wait()
}

func (p *process) note(e *episode, closed history.Record) {
	closed.Proc, closed.Seq = p.number, 1<<62
	e.note(p, closed)
}

// sample takes a snapshot of the engine every 25 ms.
func (e *episode) sample(stop <-chan struct{}) (samples []history.Sample) {
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		now := clock()
		samples = append(samples, history.Sample{Begin: now, End: now, Keys: e.engine.Snapshot()})
		select {
		case <-stop:
			return samples
		case <-tick.C:
		}
	}
}

// result checks the history.
func (e *episode) result(samples []history.Sample) *Result {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.over = true
	h := &history.History{
		Records: e.records, Faults: e.faults, Samples: samples, Attempts: e.register.attempts,
		Keys: e.plan.Keys, Told: int64(time.Millisecond),
	}
	r := &Result{Plan: e.plan, History: h, Violations: e.violations, Virtual: time.Since(e.begin)}
	r.Hash = hash(h)
	for _, one := range h.Records {
		if one.Op == history.Acquire && one.Outcome == history.OK {
			r.Sections++
		}
	}
	return r
}

// hash returns a hash of all records, in order.
func hash(h *history.History) uint64 {
	sum := fnv.New64a()
	for _, r := range h.Records {
		fmt.Fprintf(sum, "%d %d %s %s %s %d %d %d %s %d %d %d %d %s\n", r.Proc, r.Seq, r.Op, r.Key, r.Lease, r.Hold, r.Call, r.Ret,
			r.Outcome, r.Token, r.Tokens, r.Valid, r.CtxEnd, r.Note)
	}
	for _, a := range h.Attempts {
		fmt.Fprintln(sum, a)
	}
	for _, f := range h.Faults {
		fmt.Fprintln(sum, f)
	}
	for _, s := range h.Samples {
		for _, k := range s.Keys {
			fmt.Fprint(sum, s.Begin, k.Name, k.PTTL, k.Fields)
		}
	}
	return sum.Sum64()
}

// register is the resource that the locks guard. It accepts a write only if no earlier write
// had a higher token.
type register struct {
	latency time.Duration

	mu       sync.Mutex // guards the rest
	highest  map[string]uint64
	attempts []history.Attempt
}

func newRegister(p *Plan) *register {
	return &register{latency: max(p.Latency, p.Grain).Round(max(p.Grain, 1)), highest: map[string]uint64{}}
}

// conn returns the connection of one worker of p to the register.
func (r *register) conn(p *process) client.Register { return &registerConn{r, p} }

type registerConn struct {
	register *register
	process  *process
}

// Write implements [client.Register]. It takes as long as a message.
func (c *registerConn) Write(a history.Attempt) (accepted bool, err error) {
	time.Sleep(c.register.latency)
	if c.process.isKilled() {
		return false, fmt.Errorf("process %d was killed", c.process.number)
	}
	r := c.register
	r.mu.Lock()
	defer r.mu.Unlock()
	a.At = clock()
	a.Accepted = a.Token >= r.highest[a.Key]
	if a.Accepted {
		r.highest[a.Key] = a.Token
	}
	r.attempts = append(r.attempts, a)
	return a.Accepted, nil
}

// Close implements [client.Register].
func (c *registerConn) Close() {}

// judge adds the findings of the checker.
func (r *Result) judge() {
	r.Violations = append(r.Violations, history.Verify(r.History)...)
	switch {
	case isQuorum(r.Plan.Engine):
		r.Violations = slices.DeleteFunc(r.Violations, r.isForgotten)
	case hasSeveral(r.Plan.Engine):
		r.Violations = slices.DeleteFunc(r.Violations, isOutdated)
		r.Violations = append(r.Violations, r.resumed()...)
	default:
		r.Violations = append(r.Violations, r.live()...)
		r.Violations = append(r.Violations, r.turns()...)
	}
	slices.SortStableFunc(r.Violations, func(a, b history.Violation) int { return int(a.At - b.At) })
}
