package soak

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/lockgen/lockgen/internal/faultproxy"
	"github.com/lockgen/lockgen/internal/testserver"

	"github.com/lockgen/lockgen/internal/soak/client"
	"github.com/lockgen/lockgen/internal/soak/history"
	"github.com/lockgen/lockgen/internal/soak/register"
)

const (
	workers  = 4
	endLimit = 12 * time.Second // for a client after healing; longer than its own limit
)

// testbed runs one episode after another on one server.
type testbed struct {
	server *testserver.Instance
	mu     sync.Mutex // held while the server is stopped or down
	procs  func() int // hands out process numbers
}

// episode is one running episode.
type episode struct {
	testbed *testbed
	plan    *Plan
	seed    uint64
	t       *scope
	socket  string
	proxies []*faultproxy.Proxy // one for each client
	scopes  []*scope            // of the proxies; some of their failures are repaired

	mu     sync.Mutex // guards the rest
	now    []*child   // the current process of each client
	all    []*child
	faults []history.Fault
}

// Result is the result of an episode.
type Result struct {
	Plan       *Plan
	History    *history.History
	Violations []history.Violation
}

// run runs the episode of plan. It returns the history, and the violations that were found during
// the episode.
func (b *testbed) run(ctx context.Context, seed uint64, plan *Plan) (result *Result, err error) {
	err = within(ctx, func(t *scope) error {
		dir, err := os.MkdirTemp("", "lockgen-soak-")
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		e := &episode{testbed: b, plan: plan, seed: seed, t: t, socket: filepath.Join(dir, "register")}
		result, err = e.run()
		return err
	})
	return result, err
}

func (e *episode) run() (*Result, error) {
	if _, err := e.testbed.server.Command(e.t.ctx, "FLUSHALL"); err != nil {
		return nil, err
	}
	reg, err := register.Listen(e.socket)
	if err != nil {
		return nil, err
	}
	defer e.killAll()
	for i := range e.plan.Clients {
		if err := e.join(i); err != nil {
			return nil, err
		}
	}
	sampling, stopSampling := context.WithCancel(e.t.ctx)
	defer stopSampling()
	samples := make(chan []history.Sample, 1)
	go func() { samples <- sample(sampling, e.testbed.server) }()

	e.torment()
	e.heal()
	found := e.drain()
	pause(e.t.ctx, 3*sampleEvery) // for the last samples
	stopSampling()
	taken := <-samples
	found = append(found, e.leftovers()...)
	h := &history.History{Keys: e.plan.Keys, Faults: e.faults, Samples: taken, Attempts: reg.Close()}
	for _, c := range e.all {
		h.Records = append(h.Records, c.records...)
	}
	return &Result{Plan: e.plan, History: h, Violations: found}, nil
}

// join starts client i and its proxy.
func (e *episode) join(i int) error {
	s := &scope{ctx: e.t.ctx}
	e.t.Cleanup(func() {
		s.end()
		if err := s.taken(); err != nil {
			e.t.Errorf("%v", err)
		}
	})
	e.scopes = append(e.scopes, s)
	e.proxies = append(e.proxies, faultproxy.New(s, e.testbed.server.Addr()))
	e.now = append(e.now, nil)
	e.accept(i) // New can't listen while a client of another testbed is being forked
	return e.spawn(i)
}

// spawn starts the process of client i.
func (e *episode) spawn(i int) error {
	plan := e.plan.Clients[i]
	proc := e.testbed.procs()
	c, err := spawn(client.Config{
		Proc: proc, Addr: e.proxies[i].Addr(), Register: e.socket, Keys: e.plan.Keys, LockKinds: e.plan.Kinds, Extras: e.plan.Extras,
		Seed: e.seed<<16 + uint64(e.plan.Episode), Workers: workers,
		TTL: e.plan.TTL, HandOff: plan.HandOff, ReadTimeout: plan.ReadTimeout, NoFaults: len(e.plan.Faults) == 0,
	}, plan.Skew)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.now[i] = c
	e.all = append(e.all, c)
	return nil
}

func (e *episode) current(i int) *child {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.now[i]
}

// torment makes the faults of the plan happen, each at its time, and returns when all are
// over.
func (e *episode) torment() {
	begin := time.Now()
	var striking sync.WaitGroup
	for _, f := range e.plan.Faults {
		striking.Go(func() {
			pause(e.t.ctx, time.Until(begin.Add(f.At)))
			if e.t.ctx.Err() == nil {
				e.strike(f)
			}
		})
	}
	pause(e.t.ctx, time.Until(begin.Add(e.plan.Heal)))
	striking.Wait()
}

// heal ends all effects of the faults.
func (e *episode) heal() {
	for i, p := range e.proxies {
		p.Heal()
		e.accept(i)
		e.current(i).signal(syscall.SIGCONT)
	}
}

// drain lets all clients finish.
func (e *episode) drain() []history.Violation {
	var mu sync.Mutex
	var found []history.Violation
	var draining sync.WaitGroup
	for _, c := range e.all {
		draining.Go(func() {
			c.drain()
			if v := c.end(endLimit); v != nil {
				mu.Lock()
				defer mu.Unlock()
				found = append(found, *v)
			}
		})
	}
	draining.Wait()
	return found
}

// killAll kills the processes that still run after an error.
func (e *episode) killAll() {
	for _, c := range e.all {
		select {
		case <-c.exited:
		default:
			c.kill()
		}
		select {
		case <-c.read:
		case <-time.After(time.Second):
		}
	}
}

func (p *Plan) String() string {
	return fmt.Sprintf("episode %d: kinds %v, extras %+v, ttl %v, clients %+v, faults %v", p.Episode, p.Kinds, p.Extras, p.TTL, p.Clients, p.Faults)
}
