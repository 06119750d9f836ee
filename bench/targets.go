package main

import (
	"fmt"

	"github.com/lockgen/lockgen/bench/peers"
)

// verdict is one target of the project, as measured.
type verdict struct {
	Workload string
	Target   string
	Measured string
	Met      bool
	NeedLong bool // measured too shortly to be judged: over processes, turns even out in a minute
}

// target is one thing that a workload must show. judge returns ok false when
// the run has not measured what it needs.
type target struct {
	workload string
	says     string
	long     bool // to be judged of a run of a minute alone
	judge    func(pt *part) (measured string, met, ok bool)
}

// targets are those of the issue "The runtime at full strength", in its order.
// A ratio is of medians of this run; the best peer is the fastest library that
// is not ours, in whichever configuration.
var targets = []target{
	{wHot, "at least 100 times the best peer's hand-offs/s", false, rateOverBest(100)},
	{wHot, "goroutines' shares within 1.2", false, atMost(colShares, 1.2)},
	{wHot8x8, "at least 30 times the best peer's hand-offs/s", false, rateOverBest(30)},
	{wHot8x8, "shares within 1.3 over all 64, over a minute", true, atMost(colShares, 1.3)},
	{wMilli, "at least 1.1 times the best peer's throughput", false, rateOverBest(1.1)},
	{wMilli, "p99 wait at most a fifth of that peer's", false, waitUnderBest(0.2)},
	{wMilli8x8, "at least 0.95 times the best peer's throughput", false, rateOverBest(0.95)},
	{wMilli8x8, "p99 wait at most a fifth of that peer's", false, waitUnderBest(0.2)},
	{wMilli8x8, "shares within 1.3 over all 64, over a minute", true, atMost(colShares, 1.3)},
	{wSolo, "two commands", false, atMost(colCommands, 2)},
	{wSolo, "p50 of a cycle at most 1.1 times the raw floor's", false, underRaw(colCycle50, 1.1)},
	{wMany, "above every peer", false, rateOverBest(1)},
	{wMany, "at least 1.5 times the raw floor's throughput", false, overRaw(1.5)},
	{wReentry, "no command", false, atMost(colCommands, 0)},
	{wReentry, "at most 200 ns", false, atMost(localColumns[1], 200)},
	{wReentry, "at most 2 allocations", false, atMost(localColumns[2], 2)},
	{wMemlock, "at most 2 µs", false, atMost(localColumns[1], 2000)},
	{wMemlock, "at most 10 allocations", false, atMost(localColumns[2], 10)},
	{wHolds, "one command per 100 locks and period (a fifth more for part-filled batches)", false, renewals},
	{wHolds, "goroutines do not grow with the holds (at most 20)", false, atMost(column{name: "goroutines", show: whole}, 20)},
	{wHoldsMany, "one command per 100 locks and period (a fifth more for part-filled batches)", false, renewals},
	{wHoldsMany, "goroutines do not grow with the holds (at most 20)", false, atMost(column{name: "goroutines", show: whole}, 20)},
	{wWakeup, "p50 below every peer's", false, wakeBelowAll},
	{wWaiting, "at most 3 commands and one a second, for all waiters of a process", false, fewCommands},
}

// judge compares the parts with the targets.
func (r *report) judge() {
	for _, t := range targets {
		for _, pt := range r.Parts {
			if pt.Workload != t.workload {
				continue
			}
			if measured, met, ok := t.judge(pt); ok {
				r.Targets = append(r.Targets, verdict{t.workload, t.says, measured, met, t.long && !r.Long})
			}
		}
	}
}

// of returns the median of a peer's column.
func (pt *part) of(peer, column string) (v float64, ok bool) {
	row := pt.row(peer)
	if row == nil {
		return 0, false
	}
	one, ok := row.Values[column]
	return one.Median, ok
}

// best returns the rival with the highest rate.
func (pt *part) best() (peer string, rate float64) {
	for _, row := range pt.Rows {
		if v, ok := row.Values[colRate.name]; ok && row.rival && v.Median > rate {
			peer, rate = row.Peer, v.Median
		}
	}
	return peer, rate
}

func rateOverBest(times float64) func(*part) (string, bool, bool) {
	return func(pt *part) (string, bool, bool) {
		ours, ok := pt.of(peers.Ours, colRate.name)
		peer, rate := pt.best()
		if !ok || peer == "" {
			return "", false, false
		}
		return fmt.Sprintf("%s times: %s against %s of %s", decimal(ours/rate), whole(ours), whole(rate), peer),
			ours >= times*rate, true
	}
}

func waitUnderBest(times float64) func(*part) (string, bool, bool) {
	return func(pt *part) (string, bool, bool) {
		peer, _ := pt.best()
		ours, ok := pt.of(peers.Ours, colWait99.name)
		theirs, also := pt.of(peer, colWait99.name)
		if !ok || !also {
			return "", false, false
		}
		return fmt.Sprintf("%s times: %s against %s of %s", decimal(ours/theirs), duration(ours), duration(theirs), peer),
			ours <= times*theirs, true
	}
}

func overRaw(times float64) func(*part) (string, bool, bool) {
	return func(pt *part) (string, bool, bool) {
		ours, ok := pt.of(peers.Ours, colRate.name)
		floor, also := pt.of(peers.Raw, colRate.name)
		return fmt.Sprintf("%s times: %s against %s", decimal(ours/floor), whole(ours), whole(floor)),
			ours >= times*floor, ok && also
	}
}

func underRaw(c column, times float64) func(*part) (string, bool, bool) {
	return func(pt *part) (string, bool, bool) {
		ours, ok := pt.of(peers.Ours, c.name)
		floor, also := pt.of(peers.Raw, c.name)
		return fmt.Sprintf("%s times: %s against %s", decimal(ours/floor), c.show(ours), c.show(floor)),
			ours <= times*floor, ok && also
	}
}

// slack is what rounding may add: a renewal or a stray allocation over a
// million operations is none.
const slack = 0.005

func atMost(c column, limit float64) func(*part) (string, bool, bool) {
	return func(pt *part) (string, bool, bool) {
		ours, ok := pt.of(peers.Ours, c.name)
		return c.show(ours), ours <= limit+slack, ok
	}
}

func renewals(pt *part) (string, bool, bool) {
	sent, ok := pt.of(peers.Ours, "commands")
	n, also := pt.of(peers.Ours, "holds")
	return fmt.Sprintf("%s for %s locks", whole(sent), whole(n)), sent <= 1.2*n/100+1, ok && also
}

func wakeBelowAll(pt *part) (string, bool, bool) {
	const column = "wake_p50_ns"
	ours, ok := pt.of(peers.Ours, column)
	quickest, peer := 0.0, ""
	for _, row := range pt.Rows {
		if v, ok := row.Values[column]; ok && row.rival && (peer == "" || v.Median < quickest) {
			quickest, peer = v.Median, row.Peer
		}
	}
	return fmt.Sprintf("%s times: %s against %s of %s", decimal(ours/quickest), duration(ours), duration(quickest), peer),
		ours < quickest, ok && peer != ""
}

func fewCommands(pt *part) (string, bool, bool) {
	sent, ok := pt.of(peers.Ours, colCommands.name)
	seconds, also := pt.of(peers.Ours, "window_s")
	return fmt.Sprintf("%s in %s s", whole(sent), decimal(seconds)), sent <= 3+seconds, ok && also
}
