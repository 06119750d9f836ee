package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/lockgen/lockgen/bench/peers"
)

// verdict is one target of the project, as measured.
type verdict struct {
	Workload string
	Target   string
	Measured string
	Met      bool
	NeedLong bool // the run was too short: between processes, shares even out only in a minute
}

// target is a limit for one value of ours in a workload.
type target struct {
	workload string
	column   column
	atLeast  bool    // the limit is a minimum, not a maximum
	limit    float64 // for the column, or for its ratio to the peer's
	peer     string  // the peer to compare with, if any
	network  string  // "" for every network, or one of those below
	long     bool    // can be judged only by a run of a minute
}

// best as the peer of a target means the fastest library except ours, in any configuration.
const best = "the best peer"

// Networks of a target.
const (
	onLoopback = "loopback"
	overRTT    = "rtt" // with any delay
)

const atLeast, atMost = true, false

// targets lists the targets of the project's issues on the runtime and on speed.
var targets = []target{
	{wSolo, colCommands, atMost, 2, "", "", false},
	{wSolo, colCycle50, atMost, 1.1, peers.Raw, "", false},
	{wMany8, colRate, atLeast, 1.05, peers.Raw, overRTT, false},
	{wMany, colRate, atLeast, 1.25, peers.RawWide, overRTT, false},
	{wMany, colRate, atLeast, 1.1, peers.RawRueidis, onLoopback, false},
	{wHot, colRate, atLeast, 100, best, "", false},
	{wHot, colShares, atMost, 1.2, "", "", false},
	{wHot8x8, colRate, atLeast, 300_000, "", onLoopback, false},
	{wHot8x8, colWaitTime, atMost, 10e6, "", onLoopback, false},
	{wHot8x8, colShares, atMost, 1.3, "", "", true},
	{wMilli, colRate, atLeast, 1.1, best, "", false},
	{wMilli, colWait99, atMost, 0.2, best, "", false},
	{wMilli8x8, colRate, atLeast, 0.95, best, "", false},
	{wMilli8x8, colWait99, atMost, 100e6, "", onLoopback, false},
	{wMilli8x8, colShares, atMost, 1.3, "", "", true},
	{wProcs8, colRate, atLeast, 7000, "", onLoopback, false},
	{wProcs32, colRate, atLeast, 6000, "", onLoopback, false},
	{wProcs64, colRate, atLeast, 5500, "", onLoopback, false},
	{wProcs8, colShares, atMost, 1.3, "", "", true},
	{wProcs64, colShares, atMost, 1.3, "", "", true},
	{wProcs8, colScripts, atMost, 2.1, "", "", false},
	{wProcs64, colScripts, atMost, 2.1, "", "", false},
	{wRedisson, colOurs, atLeast, 0.5, "", "", false},
	{wRedisson, colForeign, atLeast, 0.5, "", "", false},
	{wRedisson1, colOurs, atLeast, 0.5, "", "", false},
	{wRedisson1, colForeign, atLeast, 0.5, "", "", false},
	{wRedisson2, colOurs, atLeast, 0.5, "", "", false},
	{wRedisson2, colForeign, atLeast, 0.5, "", "", false},
	{wWakeup, colWake50, atMost, 0.8, peers.RawPubSub, onLoopback, false},
	{wWakeup, colWake50, atMost, 0.55, "rueidislock", overRTT, false},
	{wReentry, colCommands, atMost, 0, "", "", false},
	{wReentry, colMean, atMost, 150, "", "", false},
	{wReentry, colAllocs, atMost, 2, "", "", false},
	{wMemlock, colMean, atMost, 600, "", "", false},
	{wMemlock, colAllocs, atMost, 4, "", "", false},
	{wSticky, colRate, atLeast, 1_000_000, "", "", false},
	{wSticky, colCommands, atMost, 0, "", "", false},
	{wRecall, colWait50, atMost, 2e6, "", onLoopback, false},
	{wHolds, colPer100, atMost, 1.2, "", "", false},
	{wHolds, colGoroutines, atMost, 20, "", "", false},
	{wHoldsMany, colPer100, atMost, 1.2, "", "", false},
	{wHoldsMany, colGoroutines, atMost, 20, "", "", false},
}

// judge compares the results with the targets. It leaves out targets that were not measured.
func (r *report) judge() {
	for _, t := range slices.Concat(targets, r.derived()) {
		if t.network == onLoopback && r.RTT != "" || t.network == overRTT && r.RTT == "" {
			continue
		}
		for _, pt := range r.Parts {
			if pt.Workload != t.workload {
				continue
			}
			if v, ok := t.judge(pt); ok {
				v.NeedLong = t.long && !r.Long
				r.Targets = append(r.Targets, v)
			}
		}
	}
}

// derived returns the targets that depend on the results. 38,000 new locks a second
// may leave 100,000 keys, other rates in proportion. Over a network a
// hand-off between processes takes half a round trip for the release and half for
// the notice. For a hold of 64 processes the server may use 1.5 times the CPU of a hold of
// two. Inside one process a million holds a second are enough, or 0.7 of the floor on a slow machine.
func (r *report) derived() []target {
	all := []target{{wWaiting, colCommands, atMost, 3 + 2*r.Seconds, "", "", false}}
	rtt, _ := time.ParseDuration(r.RTT)
	for _, pt := range r.Parts {
		switch cpu, ok := pt.of(peers.Ours, colServer.name); {
		case pt.Workload == wProcs2 && ok && rtt == 0:
			all = append(all, target{wProcs64, colServer, atMost, 1.5 * cpu, "", "", false})
		case pt.Workload == wNewKeys && rtt == 0:
			if rate, ok := pt.of(peers.Ours, colRate.name); ok {
				all = append(all, target{wNewKeys, colKeys, atMost, 100_000 * rate / 38_000, "", "", false})
			}
		case pt.Workload == wHot && rtt == 0:
			limit := 1e6
			if floor, ok := pt.of(peers.FIFO, colRate.name); ok {
				limit = min(limit, 0.7*floor)
			}
			all = append(all, target{wHot, colRate, atLeast, limit, "", "", false})
		case slices.Contains([]string{wProcs8, wProcs32, wProcs64}, pt.Workload) && rtt > 0:
			all = append(all, target{pt.Workload, colRate, atLeast, 0.9 / rtt.Seconds(), "", "", false})
		}
	}
	return all
}

// slack is the excess over a limit that is ignored: one renewal or one unrelated allocation
// in a million operations.
const slack = 0.005

func (t *target) judge(pt *part) (v verdict, ok bool) {
	ours, ok := pt.of(peers.Ours, t.column.name)
	if !ok {
		return v, false
	}
	limit, says := t.limit, t.column.show(t.limit)
	measured := t.column.show(ours)
	if t.peer != "" {
		peer := t.peer
		if peer == best {
			peer = pt.best()
		}
		theirs, ok := pt.of(peer, t.column.name)
		if !ok || theirs == 0 {
			return v, false
		}
		limit, says = t.limit*theirs, decimal(t.limit)+" times that of "+t.peer
		measured = fmt.Sprintf("%s times: %s against %s of %s", decimal(ours/theirs), measured, t.column.show(theirs), peer)
	}
	v = verdict{Workload: t.workload, Measured: measured}
	if t.atLeast {
		v.Target, v.Met = t.column.title+" at least "+says, ours >= limit
	} else {
		v.Target, v.Met = t.column.title+" at most "+says, ours <= limit+slack
	}
	return v, true
}

// of returns the median of the column of a peer.
func (pt *part) of(peer, column string) (v float64, ok bool) {
	row := pt.row(peer)
	if row == nil {
		return 0, false
	}
	value, ok := row.Values[column]
	return value.Median, ok
}

// best returns the rival with the most holds.
func (pt *part) best() (peer string) {
	most := -1.0
	for _, row := range pt.Rows {
		if v, ok := row.Values[colRate.name]; ok && row.rival && v.Median > most {
			most, peer = v.Median, row.Peer
		}
	}
	return peer
}
