package main

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockgen/lockgen/bench/peers"
	"github.com/lockgen/lockgen/bench/section"
	lock "github.com/lockgen/lockgen/runtime"
	"github.com/lockgen/lockgen/runtime/backends/memlock"
	"github.com/lockgen/lockgen/runtime/backends/redislock"
)

var (
	colMean   = column{"ns", "mean", duration}
	colAllocs = column{"allocs", "allocations", decimal}

	localColumns = []column{colMean, colAllocs, {"bytes", "bytes", whole}}
)

// reentry is a nested acquire and release under a hold at the server.
var reentry = &workload{
	name:      wReentry,
	redisOnly: true,
	about:     "a nested acquire and release under a hold in Redis",
	columns:   append(localColumns[:len(localColumns):len(localColumns)], colCommands.titled("commands")),
	summary:   []column{colMean, colAllocs},
	joins:     (*peers.Peer).Ours,
	measure: func(ctx context.Context, b *bench, w *workload, p *peers.Peer) (metrics, error) {
		return b.local(ctx, w, p)
	},
	work: func(ctx context.Context, s *session) (any, error) { return s.reenter(ctx) },
}

// uncontendedMemory is the cost of the Locker itself.
var uncontendedMemory = &workload{
	name:      wMemlock,
	redisOnly: true,
	about:     "1 goroutine, 1 key, on memlock",
	columns:   localColumns,
	summary:   []column{colMean, colAllocs},
	joins:     (*peers.Peer).Ours,
	measure: func(ctx context.Context, b *bench, w *workload, p *peers.Peer) (metrics, error) {
		return b.local(ctx, w, p)
	},
	work: func(ctx context.Context, s *session) (any, error) { return s.lockInMemory(ctx) },
}

// cost is the time and memory that one operation takes.
type cost struct {
	Mean          float64 // ns
	Allocs, Bytes float64
	Visits        uint64 // of the section
}

func (b *bench) local(ctx context.Context, w *workload, p *peers.Peer) (m metrics, err error) {
	s, err := b.stage(ctx, p, w.name, 1, 1, job{TTL: b.ttl, Length: b.length})
	defer s.leave(&err)
	if err != nil {
		return nil, err
	}
	// The outer lock is acquired before the first count and released after the second.
	s.crew.tellAll(opLock, time.Now())
	if _, err := s.crew.hearAll(ctx, noteHolding); err != nil {
		return nil, err
	}
	if _, err := s.count(ctx); err != nil {
		return nil, err
	}
	s.crew.tellAll(opGo, time.Now())
	if _, err := s.crew.hearAll(ctx, noteReleased); err != nil {
		return nil, err
	}
	sent, err := s.count(ctx)
	if err != nil {
		return nil, err
	}
	s.crew.tellAll(opRelease, time.Now())
	all, err := results[cost](ctx, s.crew)
	if err != nil {
		return nil, err
	}
	c := all[0]
	if err := s.verify(c.Visits); err != nil {
		return nil, err
	}
	return metrics{colMean.name: c.Mean, colAllocs.name: c.Allocs, "bytes": c.Bytes, colCommands.name: sent.commands}, nil
}

func (s *session) reenter(ctx context.Context) (c *cost, err error) {
	client := redis.NewClient(&redis.Options{Addr: s.Addr})
	defer client.Close()
	locker := lock.New(redislock.New(client), nil)
	defer func() { err = errors.Join(err, locker.Close(ctx)) }()

	s.say(note{Op: noteReady})
	if _, err := s.hear(opLock); err != nil {
		return nil, err
	}
	policy := &lock.Policy{Method: "bench", TTL: s.TTL, Reentrant: true}
	inside, held, err := locker.Acquire(ctx, policy, s.key0())
	if err != nil {
		return nil, err
	}
	defer held.Release(&err)
	token, _ := lock.Token(inside)
	slot, who := s.board.Slot(0), s.who(0)
	visit := slot.Enter(who, token)
	defer slot.Leave(who, visit)

	c, err = s.cost(inside, func() (err error) {
		_, nested, err := locker.Acquire(inside, policy, s.key0())
		if err != nil {
			return err
		}
		nested.Release(&err)
		return err
	})
	if err == nil {
		c.Visits = 1
	}
	return c, err
}

func (s *session) lockInMemory(ctx context.Context) (c *cost, err error) {
	locker := lock.New(memlock.New(), nil)
	defer func() { err = errors.Join(err, locker.Close(ctx)) }()
	s.say(note{Op: noteReady})
	if _, err := s.hear(opLock); err != nil {
		return nil, err
	}
	policy := &lock.Policy{Method: "bench", TTL: s.TTL}
	slot, who := s.board.Slot(0), s.who(0)
	visits := uint64(0)
	c, err = s.cost(ctx, func() (err error) {
		inside, held, err := locker.Acquire(ctx, policy, s.key0())
		if err != nil {
			return err
		}
		visits++
		visitWith(slot, who, inside)
		held.Release(&err)
		return err
	})
	if err == nil {
		c.Visits = visits
	}
	return c, err
}

// key0 returns the key of workloads with one key, without the cost of formatting it.
func (s *session) key0() string { return s.Prefix }

func visitWith(slot *section.Slot, who uint64, inside context.Context) {
	token, _ := lock.Token(inside)
	slot.Leave(who, slot.Enter(who, token))
}

// batch is the number of operations between two readings of the clock.
const batch = 256

// cost runs op for the length of the job, between the harness's two counts.
func (s *session) cost(ctx context.Context, op func() error) (*cost, error) {
	for range 4 * batch { // warms caches and pools
		if err := op(); err != nil {
			return nil, err
		}
	}
	if _, err := s.await(ctx, noteHolding, opGo); err != nil {
		return nil, err
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	begin := time.Now()
	n := 0
	for ; time.Since(begin) < s.Length; n += batch {
		for range batch {
			if err := op(); err != nil {
				return nil, err
			}
		}
	}
	took := time.Since(begin)
	runtime.ReadMemStats(&after)
	s.say(note{Op: noteReleased})
	if _, err := s.hear(opRelease); err != nil {
		return nil, err
	}
	return &cost{
		Mean:   float64(took) / float64(n),
		Allocs: float64(after.Mallocs-before.Mallocs) / float64(n),
		Bytes:  float64(after.TotalAlloc-before.TotalAlloc) / float64(n),
	}, nil
}
