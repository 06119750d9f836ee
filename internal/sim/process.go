package sim

import (
	"context"
	"runtime"
	"slices"
	"strings"
	"time"

	lock "github.com/lockgen/lockgen/runtime"

	"github.com/lockgen/lockgen/internal/soak/client"
	"github.com/lockgen/lockgen/internal/soak/history"

	"github.com/lockgen/lockgen/internal/sim/vnet"
)

// gate returns when the process runs.
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

// pause stops the process's callers and its network. Its timers continue; the fault stall-clients
// makes timers late.
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
	paused := !isClosed(p.running)
	if paused {
		close(p.running)
	}
	p.mu.Unlock()
	p.path.Resume()
}

// kill ends the process, as a crash does. If its host ends too, the server is not notified. What the
// goroutines do until they have ended has no effect.
func (p *process) kill(host bool) {
	p.mu.Lock()
	if p.killed {
		p.mu.Unlock()
		return
	}
	p.killed = true
	ending := p.closing
	p.closing = true
	p.mu.Unlock()
	p.path.Kill(host)
	p.resume()
	if !ending {
		p.Abandon()
		close(p.ended)
	}
}

// isEnding reports whether the process was killed or is closing, so that ended will be closed.
func (p *process) isEnding() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closing
}

func (p *process) isKilled() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.killed
}

// close closes the process's Locker within limit while its callers work, and
// ends the process.
func (p *process) close(e *episode, limit time.Duration) {
	p.mu.Lock()
	if p.closing {
		p.mu.Unlock()
		return
	}
	p.closing = true
	p.mu.Unlock()
	closed := p.CloseWithin(limit)
	// If locks depend on a session that can't be reached, they end with it.
	if closed.Outcome == history.OK && !hasSessions(e.plan.Engine) {
		p.note(e, closed)
	}
	close(p.ended)
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// probe checks I8 once all processes have left: each key can be acquired.
func (e *episode) probe() {
	path := vnet.NewPath(e.plan.Latency, e.plan.Seed, 0)
	locker := lock.New(e.engine.Connect(path, 0), nil)
	probed := slices.Clone(e.plan.LockKinds)
	for _, key := range e.plan.Keys {
		probed = append(probed, client.LockKind{Key: key})
	}
	done := make(chan struct{})
	for _, k := range probed {
		go func() {
			defer func() { done <- struct{}{} }()
			ctx, cancel := context.WithTimeout(context.Background(), acquirable)
			defer cancel()
			begin := time.Now()
			if err := k.Probe(ctx, locker); err != nil {
				e.violate("I8", k.Key, "can't be acquired %v after all had left: %v", time.Since(begin), err)
			}
		}()
	}
	for range probed {
		<-done
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := locker.Close(ctx); err != nil {
		e.violate("I8", "", "the prober's Close: %v", err)
	}
}

// settle checks that nothing is left at the engine, and that no goroutine is left.
func (e *episode) settle() {
	for _, p := range e.all {
		if p.isEnding() {
			<-p.ended
		}
		p.path.Forget()
	}
	time.Sleep(settled)
	if left := e.engine.Remains(e.plan.Keys); left != "" {
		e.violate("I8", "", "%s", left)
	}
	e.engine.Close()
	time.Sleep(time.Second)
	if left := stacks(); left != "" {
		e.violate("I8", "", "goroutines are left:\n%s", left)
	}
}

// stacks returns the stacks of all goroutines of bubbles, without those of the simulation
// itself.
func stacks() string {
	buf := make([]byte, 1<<20)
	var left []string
	for i, stack := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if i > 0 && strings.Contains(stack, "synctest bubble") && !slices.ContainsFunc(own, func(name string) bool { return strings.Contains(stack, name) }) {
			left = append(left, stack)
		}
	}
	return strings.Join(left, "\n\n")
}

// own lists functions of goroutines of the simulation itself.
var own = []string{"sim.(*Plan).play(", "synctest.testingSynctestTest(", "synctest.Run("}
