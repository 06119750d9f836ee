package client

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/driver"

	"github.com/lockgen/lockgen/internal/soak/history"
)

const (
	// drainLimit is how long the last waiters may take after the healing: leases must end,
	// and the turns of processes that died in a queue must pass.
	drainLimit = 6 * time.Second
	closeLimit = 3 * time.Second
)

// Backend is the backend of a process.
type Backend interface {
	driver.Backend
	driver.BatchRenewer
	driver.Notifier
}

// Register is the access of one worker to the fenced resource that the locks guard.
type Register interface {
	// Write requests one write and returns whether it was accepted.
	Write(history.Attempt) (accepted bool, err error)
	Close()
}

// World is the environment of a process.
type World struct {
	Backend  Backend
	Register func() (Register, error) // called once for each worker
	Out      *history.Writer
	// Gate returns when the process runs. A simulation uses it to stop the goroutines of a
	// process that it pauses. It may be nil.
	Gate func()
}

// Process is a Locker and the workers that use it.
type Process struct {
	*process
	workers []*worker
	working sync.WaitGroup
}

// process has the state that the workers of a Process share.
type process struct {
	cfg    Config
	out    *history.Writer
	gate   func()
	locker *lock.Locker
	holds  atomic.Uint64
	stop   chan struct{} // closed when no new work is to begin
	end    sync.Once     // closes stop
}

func (p *process) stopWorkers() { p.end.Do(func() { close(p.stop) }) }

// Start makes a Locker on w.Backend and has cfg.Workers goroutines use it.
func Start(cfg Config, w World) (*Process, error) {
	if w.Gate == nil {
		w.Gate = func() {}
	}
	p := &Process{process: &process{cfg: cfg, out: w.Out, gate: w.Gate, stop: make(chan struct{})}}
	p.locker = lock.New(newWitness(w.Backend, w.Out), &lock.Options{HandOff: cfg.HandOff})
	for i := range cfg.Workers {
		reg, err := w.Register()
		if err != nil {
			return nil, err
		}
		p.workers = append(p.workers, &worker{process: p.process, rng: newRand(cfg, i), reg: reg})
	}
	for _, worker := range p.workers {
		p.working.Go(worker.run)
	}
	return p, nil
}

// Drain lets the workers finish, and closes the Locker. It returns the record of that. If the
// workers do not finish in 6 s, the record has no end, and nothing is closed.
func (p *Process) Drain() history.Record {
	p.stopWorkers()
	closed := history.Record{Op: history.Closed, Call: p.out.Now(), Outcome: history.OK}
	if !within(drainLimit, p.working.Wait) {
		closed.Outcome, closed.Note = history.Fail, stuck(p.workers)
		return closed
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	if err := p.locker.Close(ctx); err != nil {
		closed.Outcome, closed.Note = history.Fail, "Close: "+err.Error()
	}
	closed.Ret = p.out.Now()
	return closed
}

// CloseWithin closes the Locker within limit, while the workers use it. The workers end. If the
// time was too short, the record says so.
func (p *Process) CloseWithin(limit time.Duration) history.Record {
	p.stopWorkers()
	closed := history.Record{Op: history.Closed, Call: p.out.Now(), Outcome: history.OK}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := p.locker.Close(ctx); err != nil {
		closed.Outcome, closed.Note = history.Fail, "Close: "+err.Error()
	}
	closed.Ret = p.out.Now()
	p.working.Wait()
	return closed
}

// Abandon ends the goroutines of a process that was killed, without any record.
func (p *Process) Abandon() {
	p.stopWorkers()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = p.locker.Close(ctx)
	p.working.Wait()
}

// within reports whether do ended within d.
func within(d time.Duration, do func()) bool {
	done := make(chan struct{})
	go func() {
		do()
		close(done)
	}()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

func stuck(workers []*worker) string {
	text := fmt.Sprintf("not done within %v after healing:", drainLimit)
	for i, w := range workers {
		if doing := w.doing.Load(); doing != nil {
			text += fmt.Sprintf(" worker %d: %s;", i, *doing)
		}
	}
	return text
}

func newRand(cfg Config, worker int) *rand.Rand {
	return rand.New(rand.NewPCG(cfg.Seed, uint64(cfg.Proc)<<16|uint64(worker)))
}
