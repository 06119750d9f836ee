package main

import (
	"context"
	"fmt"
	"time"

	"github.com/lockgen/lockgen/example/seckill/order"
)

// These users are needed by -kill. They enter before all others.
const (
	userOfKilled  = 1 // the user whose worker is killed
	userOfStopped = 2 // the user whose worker is stopped
	afterKill     = 3 // the user who waits for the dead worker's lock
	afterStop     = 4 // the user who waits for the stopped worker's lock
	reservedUsers = 4
)

// These are the workers to which -kill does something, by their index.
const (
	toKill        = 0
	toStop        = 1
	bystander     = 2
	killProcesses = 3 // how many workers it needs
)

// minKillStock returns a stock that lasts until both workers were taken out.
func (p plan) minKillStock() int { return p.atOnce() + reservedUsers }

// faults describes what -kill did.
type faults struct {
	Killed  killedWorker  `json:"killed"`
	Stopped stoppedWorker `json:"stopped"`
	Engine  *brokenEngine `json:"engine,omitempty"`
}

type killedWorker struct {
	Worker    int     `json:"worker"`
	PID       int     `json:"pid"`
	NextOrder float64 `json:"next_order_after_ms"` // from the kill to the order of the user who waited for it
}

type stoppedWorker struct {
	Worker     int     `json:"worker"`
	PID        int     `json:"pid"`
	StoppedFor float64 `json:"stopped_for_ms"`
	LateWrite  string  `json:"late_write"` // one of the fates below, or the outcome if it is a mistake
	Error      string  `json:"error"`      // the error of the method
}

// engineFault is a failure of an engine that the demo serves itself.
type engineFault struct {
	name  string // the part that fails
	kill  func()
	mend  func() error
	least time.Duration // an order that comes earlier was already under way
	bound time.Duration // how much later the next order may come, if the engine has a bound
	after string        // what happens after the fault, for the report
}

type brokenEngine struct {
	Killed    string  `json:"killed"`
	NextOrder float64 `json:"next_order_after_ms"` // from the kill to the next order of any user
	Bound     float64 `json:"bound_ms,omitempty"`  // the limit for NextOrder, if the engine promises one
	After     string  `json:"after"`
}

// wentOn says when the next order came, and the bound if there is one.
func (b *brokenEngine) wentOn() string {
	if b.Bound == 0 {
		return fmt.Sprintf("%.0f ms later", b.NextOrder)
	}
	return fmt.Sprintf("%.0f ms later (the bound is %.0f ms)", b.NextOrder, b.Bound)
}

// The fates of a write that comes after the lease has ended.
const (
	refusedByFence = "refused by the fence"
	endedAsLost    = "ended with ErrLost, whatever became of the write"
)

// refused reports whether the database refused the late write.
func (s stoppedWorker) refused() bool { return s.LateWrite == refusedByFence }

// inject kills one worker and stops another, one after the other, each while it holds the lock of
// the stock and waits for a transfer. It opens the doors in between.
func (s *sale) inject(ctx context.Context, show *progress) (*faults, error) {
	// The worker that will be stopped serves no other user. If it were stopped during a write it
	// would hold SQLite's own lock, and no lease ends that lock.
	s.setAway(s.workers[toStop], true)
	killed, err := s.killHolder(ctx, s.workers[toKill], show)
	if err != nil {
		return nil, err
	}
	wentOn := s.breakEngine(ctx, show)
	stopped, err := s.stopHolder(ctx, s.workers[toStop], show)
	if err != nil {
		return nil, err
	}
	broken, err := wentOn()
	if err != nil {
		return nil, err
	}
	s.setAway(s.workers[toStop], false)

	// Both users got an error, and click again.
	for _, user := range []int64{userOfKilled, userOfStopped} {
		s.tally.again()
		if err := s.click(ctx, user, int(user)); err != nil {
			return nil, err
		}
	}
	return &faults{Killed: killed, Stopped: stopped, Engine: broken}, nil
}

// killHolder kills the worker inside its critical section. The sale continues when the dead
// worker's lease has ended.
func (s *sale) killHolder(ctx context.Context, p *process, show *progress) (r killedWorker, err error) {
	if _, err := s.hold(ctx, p, userOfKilled); err != nil {
		return r, err
	}
	next := s.clickAt(s.workers[bystander], afterKill)
	close(s.doors) // as many buyers enter as the shop allows at once
	s.setAway(p, true)
	if err := p.kill(); err != nil {
		return r, err
	}
	at := time.Now()
	show.event("%v was killed while it held the lock", p)
	if err := s.expectOrder(ctx, next); err != nil {
		return r, err
	}
	r = killedWorker{Worker: p.number, PID: p.cmd.Process.Pid, NextOrder: milliseconds(time.Since(at))}
	show.event("  the next order came %.0f ms later", r.NextOrder)
	return r, nil
}

// breakEngine makes the engine fail, if it can, while the shop is full. wentOn waits for the next
// order.
func (s *sale) breakEngine(ctx context.Context, show *progress) (wentOn func() (*brokenEngine, error)) {
	f := s.on.fault
	if f == nil {
		return func() (*brokenEngine, error) { return nil, nil }
	}
	s.switching.Store(f.bound > 0)
	f.kill()
	at := time.Now()
	_, before := s.tally.soFar()
	show.event("killed: %s", f.name)
	next := make(chan time.Duration, 1)
	go func() {
		for tick := time.NewTicker(time.Millisecond); ctx.Err() == nil; <-tick.C {
			_, sold := s.tally.soFar()
			if after := time.Since(at); after < f.least {
				before = sold
			} else if sold > before {
				next <- after
				return
			}
		}
	}()
	return func() (*brokenEngine, error) {
		after, err := await(ctx, next)
		broken := &brokenEngine{Killed: f.name, NextOrder: milliseconds(after), Bound: milliseconds(f.bound), After: f.after}
		if err == nil {
			show.event("  the next order came %s", broken.wentOn())
			s.switching.Store(false)
			err = f.mend()
		}
		return broken, err
	}
}

// stopHolder stops the worker inside its critical section until another worker has sold a piece.
// Then its transfer arrives and it continues, with a write for which it no longer has the lock.
func (s *sale) stopHolder(ctx context.Context, p *process, show *progress) (r stoppedWorker, err error) {
	late, err := s.hold(ctx, p, userOfStopped)
	if err != nil {
		return r, err
	}
	if err := p.stop(); err != nil {
		return r, err
	}
	at := time.Now()
	show.event("%v was stopped while it held the lock", p)
	if err := s.expectOrder(ctx, s.clickAt(s.workers[bystander], afterStop)); err != nil {
		return r, err
	}
	close(s.rush) // the late write comes while many others write
	p.transferArrived(userOfStopped)
	r = stoppedWorker{Worker: p.number, PID: p.cmd.Process.Pid, StoppedFor: milliseconds(time.Since(at))}
	if err := p.resume(); err != nil {
		return r, err
	}
	answer, err := await(ctx, late.answer)
	if err != nil {
		return r, err
	}
	r.LateWrite, r.Error = fate(answer), answer.Error
	show.event("  it went on after %.0f ms; its late write: %s", r.StoppedFor, r.LateWrite)
	return r, nil
}

func fate(late reply) string {
	switch {
	case late.Fenced:
		return refusedByFence
	case late.Lost:
		return endedAsLost
	default:
		return late.Outcome
	}
}

// hold makes the user pay by transfer at p, and returns when p says that it holds the lock.
func (s *sale) hold(ctx context.Context, p *process, user int64) (*call, error) {
	c := p.click(user, order.Transfer)
	select {
	case <-c.holding:
		return c, nil
	case r := <-c.answer:
		if s.switchedSoon(ctx, r) {
			return s.hold(ctx, p, user)
		}
		return nil, fmt.Errorf("%v should hold the lock by now, but answered %s %s", p, r.Outcome, r.Error)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// timedCall is a click and its time.
type timedCall struct {
	*call
	at time.Time
}

func (s *sale) clickAt(p *process, user int64) timedCall {
	return timedCall{call: p.click(user, order.Card), at: time.Now()}
}

// expectOrder waits for an answer that must be an order.
func (s *sale) expectOrder(ctx context.Context, c timedCall) error {
	r, err := await(ctx, c.answer)
	if err != nil {
		return err
	}
	if r.Outcome != placed {
		return fmt.Errorf("an order was due once the lease had ended, but the answer is: %s %s", r.Outcome, r.Error)
	}
	s.tally.add(placed, time.Since(c.at))
	return nil
}
