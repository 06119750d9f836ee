package main

import (
	"context"

	"github.com/lockgen/lockgen/bench/peers"
)

// workload is one row of the plan: what the harness does, what each worker
// does, and the columns that come of it.
type workload struct {
	name      string
	about     string
	columns   []column
	redisOnly bool // it asks the server for what Redis alone tells, or is about no server
	// joins says which peers take part; nil means all.
	joins func(p *peers.Peer) bool
	// measure is the harness's side of one run: it returns a value per column.
	measure func(ctx context.Context, b *bench, w *workload, p *peers.Peer) (metrics, error)
	// work is a worker's side; its result goes to the harness as JSON.
	work func(ctx context.Context, s *session) (any, error)
}

// metrics are the values of one run, by their columns' names.
type metrics map[string]float64

// column is one value of a workload.
type column struct {
	name  string // in metrics, JSON and targets
	title string // in the table
	show  func(v float64) string
}

var (
	colRate     = column{"rate", "holds/s", whole}
	colCycle50  = column{"cycle_p50_ns", "cycle p50", duration}
	colTake50   = column{"wait_p50_ns", "acquire p50", duration}
	colCommands = column{"commands", "commands/hold", decimal}
	colShares   = column{"shares", "shares max/min", decimal}
	colWait50   = column{"wait_p50_ns", "wait p50", duration}
	colWait99   = column{"wait_p99_ns", "wait p99", duration}
	colWaitMax  = column{"wait_max_ns", "wait max", duration}
	colStuck    = column{"stuck", "stuck", whole}

	uncontended = []column{colRate, colCycle50, colTake50, colCommands}
	contended   = []column{colRate, colShares, colWait50, colWait99, colWaitMax, colCommands, colStuck}
)

// Names of workloads, as -only, the report and the targets use them.
const (
	wSolo      = "solo"
	wMany      = "many"
	wHot       = "hot"
	wHot8x8    = "hot8x8"
	wMilli     = "1ms"
	wMilli8x8  = "1ms8x8"
	wWakeup    = "wakeup"
	wWaiting   = "waiting"
	wReentry   = "reentry"
	wMemlock   = "memlock"
	wHolds     = "holds"
	wHoldsMany = "holds10x"
)

// workloads returns the plan, in the order of the report.
func workloads() []*workload {
	return []*workload{
		contention(wSolo, "1 goroutine, 1 key, empty section", shape{1, 1, 1, 0}, uncontended),
		contention(wMany, "64 goroutines on 64 keys, empty section", shape{1, 64, 64, 0}, uncontended),
		contention(wHot, "64 goroutines on 1 key, empty section", shape{1, 64, 1, 0}, contended),
		contention(wHot8x8, "8 processes of 8 goroutines on 1 key, empty section", shape{8, 8, 1, 0}, contended),
		contention(wMilli, "64 goroutines on 1 key, a section of 1 ms", shape{1, 64, 1, millisecond}, contended),
		contention(wMilli8x8, "8 processes of 8 goroutines on 1 key, a section of 1 ms", shape{8, 8, 1, millisecond}, contended),
		wakeup,
		waiting,
		reentry,
		uncontendedMemory,
		holds(wHolds, 1, func(p *peers.Peer) bool { return p.RenewEvery != nil }),
		holds(wHoldsMany, 10, oursAlone),
	}
}

func workloadNamed(name string) *workload {
	for _, w := range workloads() {
		if w.name == name {
			return w
		}
	}
	return nil
}

func (w *workload) takes(p *peers.Peer) bool { return w.joins == nil || w.joins(p) }

func oursAlone(p *peers.Peer) bool { return p.Name == peers.Ours }
