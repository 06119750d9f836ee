package peers

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/lockgen/lockgen/internal/sim/vnet"
)

// process is one process: an instance of the library and the workers that use it.
type process struct {
	*episode
	number  int
	path    *vnet.Path
	link    *link
	ctx     context.Context // ends when it is killed
	cancel  context.CancelFunc
	stop    chan struct{} // closed when no new work may begin
	working sync.WaitGroup

	mu       sync.Mutex // guards the rest
	instance Instance   // nil until it has started
	killed   bool
	draining bool
	running  chan struct{} // closed while it runs
	workers  []*worker
}

// newProcess makes the process with this number, without starting it.
func (e *episode) newProcess(number int) *process {
	p := &process{episode: e, number: number, running: make(chan struct{}), stop: make(chan struct{})}
	close(p.running)
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.path = vnet.NewPath(e.plan.Latency, e.plan.Seed, number)
	p.link = newLink(number, e.server, p.path, e.peer)
	if e.verbose {
		p.link.trace = e.trace
	}
	return p
}

// spawn starts process i of the plan.
func (e *episode) spawn(i int) {
	plan := e.plan.Processes[i]
	e.mu.Lock()
	e.numbers++
	number := e.numbers
	e.mu.Unlock()
	p := e.newProcess(number)
	e.mu.Lock()
	e.now[i] = p
	e.all = append(e.all, p)
	e.mu.Unlock()
	p.working.Go(func() {
		instance := p.start(Options{TTL: e.plan.TTL, HandOff: plan.HandOff, Timeout: plan.ReadTimeout, Dial: p.link.dial, Gate: p.gate})
		if instance == nil {
			return
		}
		for n := range e.plan.Workers {
			p.employ(rand.New(rand.NewPCG(e.plan.Seed, uint64(p.number)<<16|uint64(n))))
		}
	})
}

// employ starts a worker, unless the process is dead.
func (p *process) employ(rng *rand.Rand) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.killed {
		return
	}
	w := &worker{process: p, rng: rng}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	p.workers = append(p.workers, w)
	p.working.Go(w.run)
}

// again is the pause between two attempts of a program to start.
const again = 50 * time.Millisecond

// start makes the library's instance, with as many attempts as necessary. It returns nil if the
// process ends before.
func (p *process) start(o Options) Instance {
	for p.ctx.Err() == nil && !isClosed(p.stop) {
		p.gate()
		instance, err := p.peer.Start(o)
		if err == nil {
			p.mu.Lock()
			p.instance = instance
			killed := p.killed
			p.mu.Unlock()
			if killed {
				_ = instance.Close()
				return nil
			}
			return instance
		}
		p.log("process %d can't start: %v", p.number, err)
		time.Sleep(again)
	}
	return nil
}

// gate waits until the process runs.
func (p *process) gate() {
	for {
		p.mu.Lock()
		running := p.running
		p.mu.Unlock()
		if isClosed(running) {
			return
		}
		<-running
	}
}

// pause stops the process's callers and its network. Its timers continue.
func (p *process) pause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.killed || !isClosed(p.running) {
		return
	}
	p.running = make(chan struct{})
	p.path.Pause()
}

// resume ends pause.
func (p *process) resume() {
	p.mu.Lock()
	if !isClosed(p.running) {
		close(p.running)
	}
	p.mu.Unlock()
	p.path.Resume()
}

// kill ends the process as a crash does. If host is set, its host dies too, of which the server is
// not notified. What the goroutines do until they have ended has no effect.
func (p *process) kill(host bool) {
	p.mu.Lock()
	if p.killed {
		p.mu.Unlock()
		return
	}
	p.killed = true
	instance, workers := p.instance, p.workers
	p.mu.Unlock()
	p.log("process %d is killed", p.number)
	p.path.Kill(host)
	p.resume()
	p.cancel()
	for _, w := range workers { // cancelling a common parent would end them in any order
		w.cancel()
	}
	p.end()
	if instance != nil {
		p.working.Go(func() { _ = instance.Close() })
	}
}

// end stops new work.
func (p *process) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.draining {
		p.draining = true
		close(p.stop)
	}
}

func (p *process) isKilled() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.killed
}

func (p *process) isPaused() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !isClosed(p.running)
}

// drainLimit is how long the last calls may take after the healing. A client may wait
// for a lost answer for three times its timeout, which is three seconds.
const drainLimit = 30 * time.Second

// drain lets the workers finish, and then closes the instance. It reports whether the workers
// finished within the limit.
func (p *process) drain() bool {
	p.end()
	done := make(chan struct{})
	go func() {
		p.working.Wait()
		close(done)
	}()
	timer := time.NewTimer(drainLimit)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		return false
	}
	p.mu.Lock()
	instance, killed := p.instance, p.killed
	p.mu.Unlock()
	if instance != nil && !killed {
		_ = instance.Close()
	}
	return true
}
