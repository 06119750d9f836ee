package main

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/lockgen/lockgen/bench/histogram"
	"github.com/lockgen/lockgen/bench/peers"
)

var (
	colWake50 = column{"wake_p50_ns", "p50", duration}
	colWake99 = column{"wake_p99_ns", "p99", duration}
)

// wakeup is a workload of two processes on one key: one holds it, the other waits. It
// measures the time from the call of the release until the other is inside. Both
// processes read the same clock, since they are on one machine.
var wakeup = &workload{
	name:    wWakeup,
	about:   "from the call of a release to the acquire in another process",
	columns: []column{colWake50, colWake99, {"samples", "wake-ups", whole}},
	summary: []column{colWake50},
	measure: func(ctx context.Context, b *bench, w *workload, p *peers.Peer) (metrics, error) {
		return b.wakeups(ctx, w, p)
	},
	work: func(ctx context.Context, s *session) (any, error) {
		if s.Process == 0 {
			return s.holdAndRelease(ctx)
		}
		return s.waitAndTell(ctx)
	},
}

// settle returns how long a waiter waits before the release. The time is long enough for
// the waiter to subscribe, and random, so that each phase of a poll is equally likely.
func settle() time.Duration { return 20*time.Millisecond + rand.N(80*time.Millisecond) }

// reportDelay is how long the holder waits after a release before it reports it. In production the
// holder is on another machine; here its report would wake a third process on the
// cores that the waiter's wake-up needs.
const reportDelay = 5 * time.Millisecond

func (b *bench) wakeups(ctx context.Context, w *workload, p *peers.Peer) (m metrics, err error) {
	s, err := b.stage(ctx, p, w.name, 2, 1, job{TTL: b.ttl, Length: 2 * b.length})
	defer s.leave(&err)
	if err != nil {
		return nil, err
	}
	holder, waiter := s.crew.workers[0], s.crew.workers[1]
	var wakes histogram.Histogram
	for end := time.Now().Add(2 * b.length); wakes.N() == 0 || time.Now().Before(end); {
		took, err := oneWakeup(ctx, holder, waiter)
		if err != nil {
			return nil, err
		}
		wakes.Add(took)
	}
	if err := s.verify(2 * wakes.N()); err != nil {
		return nil, err
	}
	return metrics{
		colWake50.name: float64(wakes.Quantile(0.5)),
		colWake99.name: float64(wakes.Quantile(0.99)),
		"samples":      float64(wakes.N()),
	}, nil
}

func oneWakeup(ctx context.Context, holder, waiter *worker) (time.Duration, error) {
	holder.tell(opLock, time.Now())
	if _, err := holder.hear(ctx, noteHolding); err != nil {
		return 0, err
	}
	waiter.tell(opLock, time.Now())
	sleep(ctx, settle())
	holder.tell(opRelease, time.Now())
	released, err := holder.hear(ctx, noteReleased)
	if err != nil {
		return 0, err
	}
	acquired, err := waiter.hear(ctx, noteAcquired)
	return time.Duration(acquired.At - released.At), err
}

// holdAndRelease locks the key at each opLock and releases it at the next opRelease.
func (s *session) holdAndRelease(ctx context.Context) (any, error) {
	s.say(note{Op: noteReady})
	slot, who := s.board.Slot(0), s.who(0)
	for ctx.Err() == nil {
		if _, err := s.hear(opLock); err != nil {
			break
		}
		lease, err := s.client.Lock(ctx, s.key(0))
		if err != nil {
			return nil, err
		}
		visit := slot.Enter(who, lease.Token())
		s.say(note{Op: noteHolding})
		if _, err := s.hear(opRelease); err != nil {
			return nil, err
		}
		slot.Leave(who, visit)
		at := time.Now()
		if err := lease.Unlock(ctx); err != nil {
			return nil, err
		}
		sleep(ctx, reportDelay)
		s.say(note{Op: noteReleased, At: at.UnixNano()})
	}
	return nil, nil
}

// waitAndTell locks the key at each order and reports when it was inside.
func (s *session) waitAndTell(ctx context.Context) (any, error) {
	s.say(note{Op: noteReady})
	slot, who := s.board.Slot(0), s.who(0)
	for ctx.Err() == nil {
		if _, err := s.hear(opLock); err != nil {
			break
		}
		called := time.Now()
		lease, err := s.client.Lock(ctx, s.key(0))
		if err != nil {
			return nil, err
		}
		at := time.Now()
		slot.Leave(who, slot.Enter(who, lease.Token()))
		if err := lease.Unlock(ctx); err != nil {
			return nil, err
		}
		s.say(note{Op: noteAcquired, At: at.UnixNano(), Waited: int64(at.Sub(called))})
	}
	return nil, nil
}
