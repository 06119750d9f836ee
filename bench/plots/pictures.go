package main

import (
	"cmp"
	"slices"
)

// picture is one figure: bars by workload, or lines over an axis of numbers.
type picture struct {
	name, title, unit string
	column            string            // the column of bench's report to show
	scale             func(row) float64 // the factor of the column's value; nil means 1
	groups            []group           // the bars, or the points of a line with their x
	x                 string            // the title of a line's axis; empty for bars
	over              string            // the column with x, if x is not in groups
}

// group is a workload, with its name or number in the picture.
type group struct {
	workload, label string
	x               float64
}

func constant(f float64) func(row) float64 { return func(row) float64 { return f } }

var (
	contended = []group{
		{workload: "hot", label: "64 goroutines\nof 1 process"}, {workload: "hot8x8", label: "8 processes\nof 8 goroutines"},
		{workload: "1ms8x8", label: "the same, 1 ms\nin the lock"}, {workload: "procs64", label: "64 processes"},
	}
	costly = []group{
		{workload: "solo", label: "1 goroutine\n1 key"}, {workload: "many", label: "64 goroutines\n64 keys"},
		{workload: "procs8", label: "8 processes\n1 key"}, {workload: "procs64", label: "64 processes\n1 key"},
	}
)

var pictures = []picture{
	{name: "rate", title: "Holds per second", unit: "holds/s (more is better)", column: "rate", groups: append([]group{
		{workload: "solo", label: "1 goroutine\n1 key"}, {workload: "many", label: "64 goroutines\n64 keys"},
	}, contended...)},
	{name: "waiting", title: "The longest wait for one key", unit: "ms (less is better; the length of a run cuts it off)", column: "wait_max_ns", scale: constant(1e-6), groups: contended},
	{name: "shares", title: "Holds of the luckiest over those of the unluckiest", unit: "ratio (1 is even)", column: "shares", groups: contended},
	{name: "cost-client", title: "CPU of the clients for each hold", unit: "µs (less is better)", column: "client_cpu_ns", scale: constant(1e-3), groups: costly},
	{name: "cost-server", title: "CPU of Redis for each hold", unit: "µs (less is better)", column: "server_cpu_ns", scale: constant(1e-3), groups: costly},
	{name: "growth-keys", title: "Goroutines with a key each", unit: "holds/s", x: "keys", column: "rate", groups: []group{
		{workload: "solo", x: 1}, {workload: "many8", x: 8}, {workload: "many", x: 64},
	}},
	{name: "growth-waiters", title: "Goroutines of one process on one key", unit: "holds/s", x: "goroutines", column: "rate", groups: []group{
		{workload: "hot8", x: 8}, {workload: "hot", x: 64}, {workload: "hot256", x: 256},
	}},
	{name: "growth-processes", title: "Processes on one key: the longest wait", unit: "ms (the length of a run cuts it off)", x: "processes", column: "wait_max_ns", scale: constant(1e-6), groups: []group{
		{workload: "procs2", x: 2}, {workload: "procs8", x: 8}, {workload: "procs32", x: 32}, {workload: "procs64", x: 64},
	}},
	{name: "growth-holds", title: "Commands that renew what one process holds", unit: "commands in a renewal period", x: "locks held", column: "per_100",
		scale: func(r row) float64 { return r.Values["holds"].Median / 100 }, over: "holds", groups: []group{{workload: "holds"}, {workload: "holds10x"}}},
}

// point is one value y, of the group with index x or at x of the axis.
type point struct{ x, y float64 }

// series holds the points of one library.
type series struct {
	peer   string
	points []point
}

// data holds the values of a picture. A library has no point for a workload that it took no part in.
type data struct {
	caption string
	series  []series
}

func (p *picture) collect(reports []*report) data {
	var d data
	for _, r := range reports {
		for _, part := range r.Parts {
			i := slices.IndexFunc(p.groups, func(g group) bool { return g.workload == part.Workload })
			if i < 0 {
				continue
			}
			for _, row := range part.Rows {
				v, ok := row.Values[p.column]
				if !ok {
					continue
				}
				at := point{float64(i), v.Median}
				if p.x != "" {
					at.x = p.groups[i].x
				}
				if p.over != "" {
					at.x = row.Values[p.over].Median
				}
				if p.scale != nil {
					at.y *= p.scale(row)
				}
				d.caption = cmp.Or(d.caption, r.caption())
				d.add(row.Peer, at)
			}
		}
	}
	slices.SortStableFunc(d.series, func(a, b series) int { return cmp.Compare(rank(a.peer), rank(b.peer)) })
	return d
}

func (d *data) add(peer string, at point) {
	i := slices.IndexFunc(d.series, func(s series) bool { return s.peer == peer })
	if i < 0 {
		i = len(d.series)
		d.series = append(d.series, series{peer: peer})
	}
	s := &d.series[i]
	if !slices.ContainsFunc(s.points, func(o point) bool { return o.x == at.x }) { // the value of the first report counts
		s.points = append(s.points, at)
	}
	slices.SortFunc(s.points, func(a, b point) int { return cmp.Compare(a.x, b.x) })
}
