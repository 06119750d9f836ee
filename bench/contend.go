package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/lockgen/lockgen/bench/histogram"
	"github.com/lockgen/lockgen/bench/peers"
)

const millisecond = time.Millisecond

// shape is the numbers of competing processes and goroutines, and of the keys that they compete for.
type shape struct {
	processes  int
	goroutines int // of each process
	keys       int // goroutine g uses key g modulo keys
	section    time.Duration
	times      int           // as long as the option says; 0 means once
	sticky     time.Duration // how long a released lock stays with its process
	newKeys    bool          // each acquire uses a new key
	redisson   int           // number of the processes that run Redisson
	kind       peers.Kind
}

// tally is the result of one worker.
type tally struct {
	Holds  []uint64      // by goroutine; those that began before the end
	Shared uint64        // of these, those that others may share, or whose section is not on the board
	Late   uint64        // those that began after the end; only their cost counts
	Stuck  float64       // goroutines that still waited without success; see drain
	CPU    time.Duration // of the process
	Waits  *histogram.Histogram
	Cycles *histogram.Histogram
}

// contention is a workload that repeats lock, section and unlock until the time is over.
func contention(name, about string, of shape, columns []column, summary ...column) *workload {
	return &workload{
		name:    name,
		about:   about,
		columns: columns,
		summary: summary,
		measure: func(ctx context.Context, b *bench, w *workload, p *peers.Peer) (metrics, error) {
			return b.contend(ctx, w, p, of)
		},
		work: func(ctx context.Context, s *session) (any, error) { return s.contend(ctx) },
	}
}

func (b *bench) contend(ctx context.Context, w *workload, p *peers.Peer, of shape) (m metrics, err error) {
	length := b.length * time.Duration(max(of.times, 1))
	if b.long && of.processes > 1 {
		length = longLength
	}
	if of.newKeys && b.private {
		if err := b.server.FlushAll(ctx).Err(); err != nil { // remove what the previous measurement left
			return nil, err
		}
	}
	s, err := b.stage(ctx, p, w.name, of.processes, of.keys, job{
		TTL: b.ttl, Length: length, Goroutines: of.goroutines, Keys: of.keys, Section: of.section, Sticky: of.sticky,
		NewKeys: of.newKeys, Redisson: of.redisson, Kind: of.kind,
	})
	defer s.leave(&err)
	if err != nil {
		return nil, err
	}
	before, err := s.stored(ctx)
	if err != nil {
		return nil, err
	}
	s.crew.tellAll(opGo, soon())
	tallies, err := results[tally](ctx, s.crew)
	if err != nil {
		return nil, err
	}
	cost, err := s.count(ctx)
	if err != nil {
		return nil, err
	}
	after, err := s.stored(ctx)
	if err != nil {
		return nil, err
	}
	all := merge(tallies)
	total := sum(all.Holds)
	if err := s.verify(total - all.Shared); err != nil {
		return nil, err
	}
	if all.Stuck > 0 && p.Ours() {
		return nil, fmt.Errorf("%v goroutines still waited %v after the last hold", all.Stuck, drain)
	}
	m = all.metrics(length)
	n := float64(max(total+all.Late, 1))
	m[colCommands.name], m[colScripts.name] = cost.commands/n, cost.scripts/n
	if b.pid != 0 {
		m[colServer.name] = float64(cost.cpu) / n
	}
	m[colKeys.name], m[colBytes.name] = after.keys-before.keys, after.bytes-before.bytes
	if of.redisson > 0 {
		m.share("ours", tallies[:of.processes-of.redisson], all)
		m.share("foreign", tallies[of.processes-of.redisson:], all)
	}
	return m, nil
}

// merge adds up the tallies of the workers.
func merge(tallies []tally) *tally {
	all := &tally{Waits: &histogram.Histogram{}, Cycles: &histogram.Histogram{}}
	for _, t := range tallies {
		all.Stuck += t.Stuck
		all.Late += t.Late
		all.Shared += t.Shared
		all.CPU += t.CPU
		all.Holds = append(all.Holds, t.Holds...)
		all.Waits.Merge(t.Waits)
		all.Cycles.Merge(t.Cycles)
	}
	return all
}

func (t *tally) metrics(length time.Duration) metrics {
	total := sum(t.Holds)
	return metrics{
		colStuck.name: t.Stuck,
		colRate.name:  float64(total) / length.Seconds(),
		// A goroutine without a hold counts as one hold, since a ratio needs a divisor.
		colShares.name:   float64(slices.Max(t.Holds)) / float64(max(slices.Min(t.Holds), 1)),
		colClient.name:   float64(t.CPU) / float64(max(total+t.Late, 1)),
		colCycle50.name:  float64(t.Cycles.Quantile(0.5)),
		colWait50.name:   float64(t.Waits.Quantile(0.5)),
		colWaitTime.name: float64(t.Waits.TimeWeighted(0.5)),
		colWait99.name:   float64(t.Waits.Quantile(0.99)),
		colWaitMax.name:  float64(t.Waits.Max()),
	}
}

// share records, for the workers of one side, the fewest holds of a goroutine
// divided by the mean of all goroutines, and the longest wait.
func (m metrics) share(side string, of []tally, all *tally) {
	part := merge(of)
	even := float64(sum(all.Holds)) / float64(len(all.Holds))
	m[side+"_share"] = float64(slices.Min(part.Holds)) / max(even, 1)
	m[side+"_max_ns"] = float64(part.Waits.Max())
}

func sum(all []uint64) (total uint64) {
	for _, n := range all {
		total += n
	}
	return total
}

// drain is how long after the end of a contention its waiters may still get the lock.
// Sections are short, so a goroutine that waits longer than this has been forgotten
// by its library: it would wait until its context ends.
var drain = 3 * time.Second

// contend does the work of one process.
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
	used := ownCPU()
	err = parallel(s.Goroutines, func(g int) error {
		own[g] = &lap{session: s, g: g, end: end}
		return own[g].run(ctx)
	})
	t.CPU = ownCPU() - used
	for g, l := range own {
		t.Holds[g] = l.holds
		t.Late += l.late
		t.Shared += l.shared
		if l.stuck {
			t.Stuck++
		}
		t.Waits.Merge(&l.waits)
		t.Cycles.Merge(&l.cycles)
	}
	return t, err
}

// lap is the state of one goroutine of a contention.
type lap struct {
	*session
	g   int
	end time.Time

	holds  uint64
	late   uint64
	shared uint64
	stuck  bool
	waits  histogram.Histogram // from the call to the lock
	cycles histogram.Histogram // from one call to the next
}

func (l *lap) run(ctx context.Context) error {
	key, slot, who := l.key(l.g%l.Keys), l.board.Slot(l.g%l.Keys), l.who(l.g)
	prefix := key
	called := time.Now()
	for called.Before(l.end) {
		if l.NewKeys {
			key = prefix + "." + strconv.Itoa(l.g) + "." + strconv.FormatUint(l.holds, 10)
		}
		lease, alone, err := l.lock(ctx, key)
		locked := time.Now()
		if !locked.Before(l.end) {
			// In a longer run it would have waited at least as long. Without this
			// value, a goroutine that starves would not count at all.
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
		token := lease.Token()
		if l.NewKeys {
			token = 0 // tokens rise only within one key
		}
		if alone {
			visit := slot.Enter(who, token)
			time.Sleep(l.Section)
			slot.Leave(who, visit)
		} else {
			l.shared++
			time.Sleep(l.Section)
		}
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

// lock acquires the lock of the workload. alone reports that nobody else is inside.
func (l *lap) lock(ctx context.Context, key string) (lease peers.Lease, alone bool, err error) {
	if l.Kind == "" {
		lease, err = l.client.Lock(ctx, key)
		return lease, true, err
	}
	return l.client.(peers.KindClient).LockKind(ctx, l.Kind, key, l.holds+uint64(l.g))
}

func unlocked(err error) error {
	if err != nil {
		return fmt.Errorf("unlock: %w", err)
	}
	return nil
}
