package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/lockgen/lockgen/bench/histogram"
	"github.com/lockgen/lockgen/bench/peers"
)

const millisecond = time.Millisecond

// shape is how many compete for how much.
type shape struct {
	processes  int
	goroutines int // of each process
	keys       int // goroutine g uses key g modulo keys
	section    time.Duration
}

// tally is what one worker has seen.
type tally struct {
	Holds  []uint64 // by goroutine, begun in time
	Late   uint64   // begun after the end: they count for nothing but their commands
	Stuck  float64  // goroutines that waited on in vain; see drain
	Waits  *histogram.Histogram
	Cycles *histogram.Histogram
}

// contention is lock, section, unlock in a loop until the time is over.
func contention(name, about string, of shape, columns []column) *workload {
	return &workload{
		name:    name,
		about:   about,
		columns: columns,
		measure: func(ctx context.Context, b *bench, w *workload, p *peers.Peer) (metrics, error) {
			return b.contend(ctx, w, p, of)
		},
		work: func(ctx context.Context, s *session) (any, error) { return s.contend(ctx) },
	}
}

func (b *bench) contend(ctx context.Context, w *workload, p *peers.Peer, of shape) (m metrics, err error) {
	length := b.length
	if b.long && of.processes > 1 {
		length = longLength
	}
	s, err := b.stage(ctx, p, w.name, of.processes, of.keys, job{
		TTL: b.ttl, Length: length, Goroutines: of.goroutines, Keys: of.keys, Section: of.section,
	})
	defer s.leave(&err)
	if err != nil {
		return nil, err
	}
	s.crew.tellAll(opGo, soon())
	tallies, err := results[tally](ctx, s.crew)
	if err != nil {
		return nil, err
	}
	sent, err := s.count(ctx)
	if err != nil {
		return nil, err
	}
	var shares []uint64
	var stuck float64
	var late uint64
	var waits, cycles histogram.Histogram
	for _, t := range tallies {
		stuck += t.Stuck
		late += t.Late
		shares = append(shares, t.Holds...)
		waits.Merge(t.Waits)
		cycles.Merge(t.Cycles)
	}
	total := sum(shares)
	if err := s.verify(total); err != nil {
		return nil, err
	}
	if stuck > 0 && oursAlone(p) {
		return nil, fmt.Errorf("%v goroutines still waited %v after the last hold", stuck, drain)
	}
	return metrics{
		colStuck.name:    stuck,
		colRate.name:     float64(total) / length.Seconds(),
		colCommands.name: sent / float64(max(total+late, 1)),
		// Who got nothing counts as having got one: a ratio needs it.
		colShares.name:  float64(slices.Max(shares)) / float64(max(slices.Min(shares), 1)),
		colCycle50.name: float64(cycles.Quantile(0.5)),
		colWait50.name:  float64(waits.Quantile(0.5)),
		colWait99.name:  float64(waits.Quantile(0.99)),
		colWaitMax.name: float64(waits.Max()),
	}, nil
}

func sum(all []uint64) (total uint64) {
	for _, n := range all {
		total += n
	}
	return total
}

// drain is how long after its end a contention lets those who still wait have
// their turn. By then nobody is inside for longer than a moment, so who waits
// on has been forgotten: it would wait until its context ends.
const drain = 3 * time.Second

// contend is the work of one process.
func (s *session) contend(ctx context.Context) (*tally, error) {
	begin, err := s.await(ctx, noteReady, opGo)
	if err != nil {
		return nil, err
	}
	end := begin.Add(s.Length)
	t := &tally{Holds: make([]uint64, s.Goroutines), Waits: &histogram.Histogram{}, Cycles: &histogram.Histogram{}}
	ctx, giveUp := context.WithCancel(ctx)
	defer giveUp()
	defer time.AfterFunc(time.Until(end)+drain, giveUp).Stop()
	own := make([]*lap, s.Goroutines)
	err = parallel(s.Goroutines, func(g int) error {
		own[g] = &lap{session: s, g: g, end: end}
		return own[g].run(ctx)
	})
	for g, l := range own {
		t.Holds[g] = l.holds
		t.Late += l.late
		if l.stuck {
			t.Stuck++
		}
		t.Waits.Merge(&l.waits)
		t.Cycles.Merge(&l.cycles)
	}
	return t, err
}

// lap is one goroutine of a contention.
type lap struct {
	*session
	g   int
	end time.Time

	holds  uint64
	late   uint64
	stuck  bool
	waits  histogram.Histogram // from the call to the lock
	cycles histogram.Histogram // from one call to the next
}

func (l *lap) run(ctx context.Context) error {
	key, slot, who := l.key(l.g%l.Keys), l.board.Slot(l.g%l.Keys), l.who(l.g)
	called := time.Now()
	for called.Before(l.end) {
		lease, err := l.client.Lock(ctx, key)
		locked := time.Now()
		if !locked.Before(l.end) {
			// How long it would have waited in a longer run is not known, but no
			// shorter: left out, who starves would not count at all.
			l.waits.Add(l.end.Sub(called))
		}
		switch {
		case err != nil && ctx.Err() != nil:
			l.stuck = true
			return nil
		case err != nil:
			return fmt.Errorf("lock: %w", err)
		case !locked.Before(l.end):
			l.late++
			return unlocked(lease.Unlock(ctx))
		}
		visit := slot.Enter(who, lease.Token())
		if l.Section > 0 {
			time.Sleep(l.Section)
		}
		slot.Leave(who, visit)
		if err := lease.Unlock(ctx); err != nil {
			return unlocked(err)
		}
		l.holds++
		l.waits.Add(locked.Sub(called))
		done := time.Now()
		l.cycles.Add(done.Sub(called))
		called = done
	}
	return nil
}

func unlocked(err error) error {
	if err != nil {
		return fmt.Errorf("unlock: %w", err)
	}
	return nil
}
