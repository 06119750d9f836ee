package main

import (
	"context"
	"time"

	"github.com/lockgen/lockgen/bench/histogram"
	"github.com/lockgen/lockgen/bench/peers"
)

// keptFor is how long a released lock stays with its process in these workloads.
const keptFor = 2 * time.Second

// sticky is a workload in which one process locks its own keys again and again.
func sticky() *workload {
	w := contention(wSticky, "64 goroutines on 64 keys, empty section; a released lock stays with the process for 2 s",
		shape{processes: 1, goroutines: 64, keys: 64, sticky: keptFor}, uncontended, colRate, colCommands, colClient)
	w.redisOnly, w.joins = true, (*peers.Peer).Ours
	return w
}

// recall is a workload in which two processes lock one key in turn. It measures how long one
// process waits for a lock that stays with the other.
var recall = &workload{
	name:      wRecall,
	redisOnly: true,
	about:     "from the call of lock to the lock, which another process keeps for 2 s and does not use",
	columns:   []column{colWait50, colWait99, {"samples", "recalls", whole}},
	summary:   []column{colWait50, colWait99},
	joins:     (*peers.Peer).Ours,
	measure: func(ctx context.Context, b *bench, w *workload, p *peers.Peer) (metrics, error) {
		return b.recalls(ctx, w, p)
	},
	work: func(ctx context.Context, s *session) (any, error) { return s.waitAndTell(ctx) },
}

func (b *bench) recalls(ctx context.Context, w *workload, p *peers.Peer) (m metrics, err error) {
	s, err := b.stage(ctx, p, w.name, 2, 1, job{TTL: b.ttl, Length: 2 * b.length, Sticky: keptFor})
	defer s.leave(&err)
	if err != nil {
		return nil, err
	}
	var waits histogram.Histogram
	visits := uint64(0)
	for end := time.Now().Add(2 * b.length); visits < 2 || time.Now().Before(end); visits++ {
		worker := s.crew.workers[visits%2]
		sleep(ctx, reportDelay)
		worker.tell(opLock, time.Now())
		acquired, err := worker.hear(ctx, noteAcquired)
		if err != nil {
			return nil, err
		}
		if visits > 0 { // at the first visit no process keeps the lock
			waits.Add(time.Duration(acquired.Waited))
		}
	}
	if err := s.verify(visits); err != nil {
		return nil, err
	}
	return metrics{
		colWait50.name: float64(waits.Quantile(0.5)),
		colWait99.name: float64(waits.Quantile(0.99)),
		"samples":      float64(waits.N()),
	}, nil
}
