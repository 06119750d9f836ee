package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/lockgen/lockgen/bench/peers"
)

// takers is the number of goroutines that acquire the locks and release them.
const takers = 64

// holdLimit is how long acquiring all locks may take.
const holdLimit = 2 * time.Minute

// periods is the number of renewal periods that a measurement of holds lasts.
var periods = time.Duration(2)

// stock is the cost of the holds for their process.
type stock struct {
	Goroutines   int     // additional ones
	BytesPerHold float64 // of heap and stacks
	Seconds      float64 // to acquire the locks
}

var (
	colGoroutines = column{"goroutines", "goroutines for them", whole}
	colHoldBytes  = column{"bytes", "bytes/hold", whole}
	colPer100     = column{"per_100", "commands/period for 100", decimal}
	colLate       = column{"late_ns", "worst lateness", duration}
)

// holds is a workload in which one process holds many locks at once, which the library
// renews. Their number is that of the option, times the factor times.
func holds(name string, times int, joins func(p *peers.Peer) bool) *workload {
	return &workload{
		name:      name,
		redisOnly: true,
		about:     "many locks held at once by one process, renewed by the library",
		columns: []column{
			{"holds", "holds", whole},
			colGoroutines,
			colHoldBytes,
			colPer100,
			{"period_s", "period, s", decimal},
			colLate,
			{"take_rate", "taken/s", whole},
		},
		summary: []column{colHoldBytes, colPer100, colLate},
		joins:   joins,
		measure: func(ctx context.Context, b *bench, w *workload, p *peers.Peer) (metrics, error) {
			return b.hold(ctx, w, p, times*b.holds)
		},
		work: func(ctx context.Context, s *session) (any, error) { return s.hold(ctx) },
	}
}

func (b *bench) hold(ctx context.Context, w *workload, p *peers.Peer, n int) (m metrics, err error) {
	period := p.RenewEvery(b.holdsTTL)
	s, err := b.stage(ctx, p, w.name, 1, n, job{
		TTL: b.holdsTTL, Length: periods*period + holdLimit, Goroutines: takers, Keys: n,
	})
	defer s.leave(&err)
	if err != nil {
		return nil, err
	}
	s.crew.tellAll(opLock, time.Now())
	if _, err := s.crew.hearAll(ctx, noteHolding); err != nil {
		return nil, err
	}
	if _, err := s.count(ctx); err != nil {
		return nil, err
	}
	watch := &lateness{server: s.server, ttl: b.holdsTTL, period: period}
	for i := range n {
		watch.keys = append(watch.keys, p.Key(key(s.prefix, i)))
	}
	begin := time.Now()
	late, err := watch.follow(ctx, periods*period)
	if err != nil {
		return nil, err
	}
	took := time.Since(begin)
	sent, err := s.count(ctx)
	if err != nil {
		return nil, err
	}
	s.crew.tellAll(opRelease, time.Now())
	all, err := results[stock](ctx, s.crew)
	if err != nil {
		return nil, err
	}
	if err := s.verify(uint64(n)); err != nil {
		return nil, err
	}
	return metrics{
		"holds":            float64(n),
		colGoroutines.name: float64(all[0].Goroutines),
		colHoldBytes.name:  all[0].BytesPerHold,
		colPer100.name:     100 * sent.commands / float64(n) * float64(period) / float64(took),
		"period_s":         period.Seconds(),
		colLate.name:       float64(late),
		"take_rate":        float64(n) / all[0].Seconds,
	}, nil
}

// hold is the work of the process that holds all keys.
func (s *session) hold(ctx context.Context) (*stock, error) {
	s.say(note{Op: noteReady})
	if _, err := s.hear(opLock); err != nil {
		return nil, err
	}
	keys := make([]string, s.Keys)
	for i := range keys {
		keys[i] = s.key(i)
	}
	leases := make([]peers.Lease, s.Keys)
	visits := make([]uint64, s.Keys)
	bytes, goroutines := footprint()
	begin := time.Now()
	err := s.each(func(i int) (err error) {
		leases[i], err = s.client.Lock(ctx, keys[i])
		if err == nil {
			visits[i] = s.board.Slot(i).Enter(s.who(i), leases[i].Token())
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	result := &stock{Seconds: time.Since(begin).Seconds()}
	bytesNow, goroutinesNow := footprint()
	result.BytesPerHold = (bytesNow - bytes) / float64(s.Keys)
	result.Goroutines = goroutinesNow - goroutines
	s.say(note{Op: noteHolding})
	if _, err := s.hear(opRelease); err != nil {
		return nil, err
	}
	return result, s.each(func(i int) error {
		s.board.Slot(i).Leave(s.who(i), visits[i])
		if err := leases[i].Unlock(ctx); err != nil {
			return errors.Join(fmt.Errorf("lock %d of %d was lost", i, s.Keys), err)
		}
		return nil
	})
}

// each calls f for every key, in as many goroutines as there are takers.
func (s *session) each(f func(i int) error) error {
	return parallel(takers, func(g int) error {
		for i := g; i < s.Keys; i += takers {
			if err := f(i); err != nil {
				return err
			}
		}
		return nil
	})
}

// footprint returns the memory in use and the number of goroutines. It collects garbage
// twice, because the first collection may only have queued finalizers.
func footprint() (bytes float64, goroutines int) {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc + m.StackInuse), runtime.NumGoroutine()
}
