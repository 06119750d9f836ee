package main

import (
	"context"
	"slices"

	"github.com/lockgen/lockgen/bench/peers"
)

// workload is one row of the plan: the harness's part, each worker's part,
// and the columns of the result.
type workload struct {
	name      string
	about     string
	columns   []column
	summary   []column   // the columns for the short table
	redisOnly bool       // needs statistics that only Redis has, or uses no server
	kind      peers.Kind // of the lock, if it is not a mutex
	// joins reports whether a peer takes part; nil means all that lock mutexes.
	joins func(p *peers.Peer) bool
	// lacks returns why the workload can't be measured here; nil means that it can.
	lacks func() error
	// measure does the harness's part of one run. It returns a value for each column.
	measure func(ctx context.Context, b *bench, w *workload, p *peers.Peer) (metrics, error)
	// work does a worker's part. Its result goes to the harness as JSON.
	work func(ctx context.Context, s *session) (any, error)
}

// metrics holds the values of one run, by name of the column.
type metrics map[string]float64

// column is one value of a workload.
type column struct {
	name  string // key in metrics, JSON and targets
	title string // title in the table
	show  func(v float64) string
}

var (
	colRate     = column{"rate", "holds/s", whole}
	colCycle50  = column{"cycle_p50_ns", "cycle p50", duration}
	colTake50   = column{"wait_p50_ns", "acquire p50", duration}
	colCommands = column{"commands", "commands/hold", decimal}
	colScripts  = column{"scripts", "EVALSHA/hold", decimal}
	colClient   = column{"client_cpu_ns", "client CPU/hold", duration}
	colServer   = column{"server_cpu_ns", "server CPU/hold", duration}
	colShares   = column{"shares", "shares max/min", decimal}
	colWait50   = column{"wait_p50_ns", "wait p50", duration}
	colWaitTime = column{"wait_time_p50_ns", "wait p50 by time", duration}
	colWait99   = column{"wait_p99_ns", "wait p99", duration}
	colWaitMax  = column{"wait_max_ns", "wait max", duration}
	colStuck    = column{"stuck", "stuck", whole}
	colKeys     = column{"keys", "keys left", whole}
	colBytes    = column{"bytes", "bytes left", whole}
	colOurs     = column{"ours_share", "lowest of ours, of an even share", decimal}
	colForeign  = column{"foreign_share", "lowest of theirs", decimal}
	colOursMax  = column{"ours_max_ns", "longest wait of ours", duration}
	colTheirMax = column{"foreign_max_ns", "longest of theirs", duration}

	spent       = []column{colCommands, colClient, colServer}
	uncontended = append([]column{colRate, colCycle50, colTake50}, spent...)
	contended   = slices.Concat([]column{colRate, colShares, colWait50, colWaitTime, colWait99, colWaitMax}, spent, []column{colStuck})
	between     = slices.Concat([]column{colRate, colShares, colWait50, colWaitTime, colWait99, colWaitMax, colScripts}, spent, []column{colStuck})
	sides       = []column{colRate, colShares, colWait50, colWait99, colWaitMax, colClient, colServer, colStuck}
	fresh       = append([]column{colRate, colKeys, colBytes}, spent...)
	mixed       = []column{colRate, colOurs, colForeign, colOursMax, colTheirMax}
)

// Names of workloads, as -only, the report and the targets use them.
const (
	wSolo      = "solo"
	wMany8     = "many8"
	wMany      = "many"
	wNewKeys   = "newkeys"
	wHot8      = "hot8"
	wHot       = "hot"
	wHot256    = "hot256"
	wHot8x8    = "hot8x8"
	wMilli     = "1ms"
	wMilli8x8  = "1ms8x8"
	wProcs2    = "procs2"
	wProcs8    = "procs8"
	wProcs32   = "procs32"
	wProcs64   = "procs64"
	wRedisson  = "redisson"
	wRedisson1 = "redisson1"
	wRedisson2 = "redisson2"
	wReaders   = "readers"
	wReads     = "reads"
	wReads8x8  = "reads8x8"
	wPermits   = "permits"
	wFair8x8   = "fair8x8"
	wWakeup    = "wakeup"
	wWaiting   = "waiting"
	wReentry   = "reentry"
	wMemlock   = "memlock"
	wSticky    = "sticky"
	wRecall    = "recall"
	wHolds     = "holds"
	wHoldsMany = "holds10x"
)

// workloads returns the plan, in the order of the report.
func workloads() []*workload {
	return []*workload{
		contention(wSolo, "1 goroutine, 1 key, empty section",
			shape{processes: 1, goroutines: 1, keys: 1}, uncontended, colCycle50),
		contention(wMany8, "8 goroutines on 8 keys, empty section",
			shape{processes: 1, goroutines: 8, keys: 8}, uncontended, colRate),
		contention(wMany, "64 goroutines on 64 keys, empty section",
			shape{processes: 1, goroutines: 64, keys: 64}, uncontended, colRate, colClient, colServer),
		newKeys(),
		contention(wHot8, "8 goroutines on 1 key, empty section",
			shape{processes: 1, goroutines: 8, keys: 1}, contended, colRate),
		contention(wHot, "64 goroutines on 1 key, empty section",
			shape{processes: 1, goroutines: 64, keys: 1}, contended, colRate),
		contention(wHot256, "256 goroutines on 1 key, empty section",
			shape{processes: 1, goroutines: 256, keys: 1}, contended, colRate),
		contention(wHot8x8, "8 processes of 8 goroutines on 1 key, empty section",
			shape{processes: 8, goroutines: 8, keys: 1}, contended, colRate, colWaitTime),
		contention(wMilli, "64 goroutines on 1 key, a section of 1 ms",
			shape{processes: 1, goroutines: 64, keys: 1, section: millisecond}, contended, colRate),
		contention(wMilli8x8, "8 processes of 8 goroutines on 1 key, a section of 1 ms",
			shape{processes: 8, goroutines: 8, keys: 1, section: millisecond}, contended, colRate, colWait99),
		processes(wProcs2, 2),
		processes(wProcs8, 8),
		processes(wProcs32, 32),
		processes(wProcs64, 64),
		besideRedisson(wRedisson, 1, 1),
		besideRedisson(wRedisson1, 2, 1),
		besideRedisson(wRedisson2, 2, 2),
		kinds(wReaders, "64 goroutines that read under a read-write lock, nothing inside",
			shape{processes: 1, goroutines: 64, keys: 1, kind: peers.Readers}),
		kinds(wReads, "64 goroutines on a read-write lock, one section in twenty writes, nothing inside",
			shape{processes: 1, goroutines: 64, keys: 1, kind: peers.Reads}),
		kinds(wReads8x8, "the same by 8 processes of 8 goroutines",
			shape{processes: 8, goroutines: 8, keys: 1, kind: peers.Reads}),
		kinds(wPermits, "64 goroutines on a semaphore of 8 permits, 1 ms inside",
			shape{processes: 1, goroutines: 64, keys: 1, section: millisecond, kind: peers.Permits}),
		kinds(wFair8x8, "8 processes of 8 goroutines on a fair lock, nothing inside",
			shape{processes: 8, goroutines: 8, keys: 1, kind: peers.Fair}),
		wakeup,
		waiting,
		reentry,
		uncontendedMemory,
		sticky(),
		recall,
		holds(wHolds, 1, func(p *peers.Peer) bool { return p.RenewEvery != nil }),
		holds(wHoldsMany, 10, (*peers.Peer).Ours),
	}
}

// newKeys measures what locks leave at the server. It takes six times as long as others,
// so that keys that expire after ten seconds have expired.
func newKeys() *workload {
	w := contention(wNewKeys, "64 goroutines, each hold on a key that was never used before",
		shape{processes: 1, goroutines: 64, keys: 64, times: 6, newKeys: true}, fresh, colRate, colKeys, colBytes)
	w.redisOnly = true
	return w
}

// processes measures the hand-off between n processes. Peers that poll with long pauses, or
// every millisecond, take no part: with 64 processes the result would depend on their timers.
func processes(name string, n int) *workload {
	w := contention(name, whole(float64(n))+" processes of 1 goroutine on 1 key, empty section",
		shape{processes: n, goroutines: 1, keys: 1}, between, colRate, colShares, colScripts, colServer)
	w.joins = func(p *peers.Peer) bool { return p.Rival || p.Ours() || p.Name == peers.RawPubSub }
	return w
}

// besideRedisson is a contention between n processes of Redisson and as many of ours as ours says, on one key.
func besideRedisson(name string, ours, n int) *workload {
	w := contention(name, whole(float64(ours))+" processes of 1 goroutine beside "+whole(float64(n))+" of Redisson's, a section of 1 ms",
		shape{processes: ours + n, goroutines: 1, keys: 1, section: millisecond, times: 4, redisson: n}, mixed, colOurs, colForeign)
	w.redisOnly, w.joins, w.lacks = true, (*peers.Peer).Ours, peers.JavaMissing
	return w
}

// kinds is a contention for a lock that is not a mutex.
func kinds(name, about string, of shape) *workload {
	w := contention(name, about, of, sides, colRate, colWait99, colShares)
	w.kind = of.kind
	return w
}

func workloadNamed(name string) *workload {
	for _, w := range workloads() {
		if w.name == name {
			return w
		}
	}
	return nil
}

func (w *workload) takes(p *peers.Peer) bool {
	switch {
	case w.kind != "":
		return p.Laps != nil || p.Ours()
	case p.Laps != nil:
		return false
	case p.InProcess:
		return w.name == wHot8 || w.name == wHot || w.name == wHot256
	}
	return w.joins == nil || w.joins(p)
}
