package main

import (
	"context"
	"time"

	"github.com/lockgen/lockgen/bench/peers"
)

// waiters is the number of goroutines of one process that wait for the key.
const waiters = 10

// waiting is a workload that counts the commands of a process that waits. The holder is
// another process, which sends nothing meanwhile.
var waiting = &workload{
	name:      wWaiting,
	redisOnly: true,
	about:     "commands that 10 waiters of one process send while another process holds the key",
	columns:   []column{colCommands.titled("commands"), {"window_s", "in seconds", decimal}},
	summary:   []column{colCommands.titled("commands")},
	measure: func(ctx context.Context, b *bench, w *workload, p *peers.Peer) (metrics, error) {
		return b.wait(ctx, w, p)
	},
	work: func(ctx context.Context, s *session) (any, error) {
		if s.Process == 0 {
			return s.holdAndRelease(ctx)
		}
		return s.waitInCrowd(ctx)
	},
}

// titled returns c with another title.
func (c column) titled(title string) column {
	c.title = title
	return c
}

func (b *bench) wait(ctx context.Context, w *workload, p *peers.Peer) (m metrics, err error) {
	window := 2 * b.length
	s, err := b.stage(ctx, p, w.name, 2, 1, job{TTL: b.ttl, Length: window, Goroutines: waiters})
	defer s.leave(&err)
	if err != nil {
		return nil, err
	}
	holder, crowd := s.crew.workers[0], s.crew.workers[1]
	holder.tell(opLock, time.Now())
	if _, err := holder.hear(ctx, noteHolding); err != nil {
		return nil, err
	}
	if _, err := s.count(ctx); err != nil {
		return nil, err
	}
	crowd.tell(opGo, time.Now())
	sleep(ctx, window)
	sent, err := s.count(ctx)
	if err != nil {
		return nil, err
	}
	holder.tell(opRelease, time.Now())
	if _, err := holder.hear(ctx, noteReleased); err != nil {
		return nil, err
	}
	if _, err := crowd.hear(ctx, noteResult); err != nil {
		return nil, err
	}
	if err := s.verify(waiters + 1); err != nil {
		return nil, err
	}
	return metrics{colCommands.name: sent.commands, "window_s": window.Seconds()}, nil
}

// waitInCrowd locks the key once in each goroutine of the process.
func (s *session) waitInCrowd(ctx context.Context) (any, error) {
	if _, err := s.await(ctx, noteReady, opGo); err != nil {
		return nil, err
	}
	slot := s.board.Slot(0)
	return nil, parallel(s.Goroutines, func(g int) error {
		lease, err := s.client.Lock(ctx, s.key(0))
		if err != nil {
			return err
		}
		slot.Leave(s.who(g), slot.Enter(s.who(g), lease.Token()))
		return lease.Unlock(ctx)
	})
}
