package peers

import (
	"context"
	"time"

	"github.com/lockgen/lockgen/internal/sim/vnet"
)

// chatty is the number of requests per second that a waiter may send while nothing happens.
const chatty = 5

// quietWait counts the requests of one waiter in a second in which another process only holds
// and renews the lock.
func (e *episode) quietWait() {
	key := e.plan.Keys[0]
	holder, waiter := e.prober(), e.prober()
	defer holder.drain()
	defer waiter.drain()
	held, err := holder.instance.Acquire(holder.ctx, key, 5*time.Second)
	if err != nil {
		e.find(Liveness, key, "the lock can't be acquired after all processes have left: %v", err)
		return
	}
	waiter.working.Go(func() {
		next, err := waiter.instance.Acquire(waiter.ctx, key, 10*time.Second)
		if err != nil {
			e.find(Liveness, key, "the last process can't acquire the lock: %v", err)
			return
		}
		_ = next.Release(waiter.ctx)
	})
	time.Sleep(500 * time.Millisecond)
	before := waiter.link.sent()
	time.Sleep(time.Second)
	e.rate = waiter.link.sent() - before
	_ = held.Release(context.Background())
	if e.rate > chatty {
		e.find(Polling, key, "a waiter sends %d requests in a second", e.rate)
	}
}

// prober is a process without workers.
func (e *episode) prober() *process {
	e.mu.Lock()
	e.numbers++
	number := e.numbers
	e.mu.Unlock()
	p := e.newProcess(number)
	p.start(Options{TTL: e.plan.TTL, Timeout: time.Second, Dial: p.link.dial, Gate: p.gate})
	e.mu.Lock()
	e.all = append(e.all, p)
	e.mu.Unlock()
	return p
}

// unanswered asks for a free lock at a server that does not answer, and checks the
// error.
func (e *episode) unanswered() {
	key := e.plan.Keys[0]
	p := e.prober()
	defer p.drain()
	if held, err := p.instance.Acquire(p.ctx, key, 5*time.Second); err == nil { // now the process has a connection
		_ = held.Release(p.ctx)
	}
	p.path.Hole(vnet.Both)
	begin := time.Now()
	held, err := p.instance.Acquire(p.ctx, key, 300*time.Millisecond)
	p.path.Heal()
	switch {
	case err == nil:
		_ = held.Release(p.ctx)
	case e.peer.SaysTaken(err):
		e.find(WrongError, key, "the server did not answer for %v, but the error of the last process is: %v", time.Since(begin), err)
	}
}
