package peers

import (
	"fmt"
	"hash"
	"hash/fnv"
	"slices"
	"sync"
	"time"

	"github.com/lockgen/lockgen/internal/sim"
)

const (
	// settled is how long goroutines and connections may outlive an instance. go-redis
	// dials five times with a limit of 5 s each and pauses in between.
	settled = time.Minute
	// linger is how much longer than its ttl a lock may stay at the server.
	linger = 100 * time.Millisecond
)

// episode is one running episode of one library and one plan.
type episode struct {
	plan     *sim.Plan
	peer     Peer
	server   *server
	register *register
	begin    time.Time
	verbose  bool

	mu      sync.Mutex // guards the rest
	now     []*process // the current process of each ProcessPlan
	all     []*process
	numbers int
	faults  []*fault
	holds   []*hold // all holds, in the order in which they were acquired
	calls   []*call // all acquires
	found   []Finding
	rate    int // requests per second of a waiter while nothing happens
	sum     hash.Hash64
	lines   []string
}

// Result is the result of an episode.
type Result struct {
	Peer     string
	Seed     uint64
	Plan     *sim.Plan
	Findings []Finding
	Sections int
	Rate     int      // requests per second of one waiter, when there is only one holder otherwise
	Hash     uint64   // of all events, in order
	Log      []string // only if verbose
	Virtual  time.Duration
}

// play runs the episode of the plan in the bubble of its caller.
func play(peer Peer, plan *sim.Plan, verbose bool) *Result {
	sim.SeedChance(plan.Seed)
	e := &episode{plan: plan, peer: peer, server: newServer(), begin: time.Now(), verbose: verbose, sum: fnv.New64a()}
	e.register = &register{episode: e, latency: plan.Latency, keys: map[string]*value{}}
	e.now = make([]*process, len(plan.Processes))
	for i := range plan.Processes {
		e.spawn(i)
	}
	stop := make(chan struct{})
	var sampling sync.WaitGroup
	sampling.Go(func() { e.sample(stop) })
	e.torment()
	e.heal()
	e.drain()
	close(stop)
	sampling.Wait()
	e.remains()
	e.quietWait()
	e.unanswered()
	e.liveness()
	for _, p := range e.processes() {
		p.path.Forget()
	}
	time.Sleep(settled)
	e.server.Close()
	time.Sleep(time.Second)
	return e.result()
}

func (e *episode) current(i int) *process {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.now[i]
}

func (e *episode) processes() []*process {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.all)
}

// log adds an event to the hash and, if the episode is verbose, to the log.
func (e *episode) log(format string, args ...any) {
	line := fmt.Sprintf("%10.3f ms  ", e.at(time.Now())) + fmt.Sprintf(format, args...)
	e.mu.Lock()
	defer e.mu.Unlock()
	_, _ = e.sum.Write([]byte(line))
	if e.verbose {
		e.lines = append(e.lines, line)
	}
}

// trace adds a request to the log.
func (e *episode) trace(process int, words []string) {
	line := fmt.Sprintf("%10.3f ms    process %d sends %.100q", e.at(time.Now()), process, words)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lines = append(e.lines, line)
}

// at returns t in ms since the episode began.
func (e *episode) at(t time.Time) float64 { return float64(t.Sub(e.begin)) / float64(time.Millisecond) }

// torment makes the faults of the plan happen, each at its time, and returns when all
// are over.
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
	e.server.Resume()
	for i := range e.plan.Processes {
		p := e.current(i)
		p.path.Heal()
		p.resume()
	}
	e.log("all faults are healed")
}

// drain lets all processes finish.
func (e *episode) drain() {
	var draining sync.WaitGroup
	for _, p := range e.processes() {
		draining.Go(func() {
			if !p.drain() {
				e.find(Liveness, "", "process %d has a call that did not return within %v after the healing", p.number, drainLimit)
				p.kill(false)
				p.working.Wait()
			}
		})
	}
	draining.Wait()
	e.log("all processes have left")
}

// result returns the result. It is called when the episode is over.
func (e *episode) result() *Result {
	e.mu.Lock()
	defer e.mu.Unlock()
	return &Result{
		Peer: e.peer.Name(), Seed: e.plan.Seed, Plan: e.plan, Findings: e.found, Sections: len(e.holds), Rate: e.rate,
		Hash: e.sum.Sum64(), Log: e.lines, Virtual: time.Since(e.begin),
	}
}
