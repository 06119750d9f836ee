package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// report has the results of the demo.
type report struct {
	Backend   string   `json:"backend"`
	Workers   int      `json:"workers"`
	Buyers    int      `json:"buyers"`
	Clicks    int      `json:"clicks"`
	Stock     int      `json:"stock"`
	Unguarded result   `json:"unguarded"`
	Guarded   result   `json:"guarded"`
	Kill      *faults  `json:"kill,omitempty"` // what was done during the guarded sale
	Problems  []string `json:"problems"`       // the problems of the guarded sale

	engine string // the name of the backend for people
}

func newReport(p plan, on *engine, unguarded, guarded result) report {
	return report{
		Backend: on.name, engine: on.label,
		Workers: p.processes, Buyers: p.buyers, Clicks: p.clicks(), Stock: p.stock,
		Unguarded: unguarded, Guarded: guarded, Kill: guarded.Faults,
		Problems: append([]string{}, guarded.problems(p)...),
	}
}

// writeJSON writes the report as one JSON object.
func (r report) writeJSON(w io.Writer) error {
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	return out.Encode(r)
}

// writeTable writes the report for a person.
func (r report) writeTable(w io.Writer) error {
	if _, err := fmt.Fprintf(w, "%d pieces, %d buyers, %d clicks, %d processes, %s\n\n",
		r.Stock, r.Buyers, r.Clicks, r.Workers, r.engine); err != nil {
		return err
	}
	for _, row := range r.rows() {
		if _, err := fmt.Fprintf(w, "%-10s  %12s  %12s\n", row[0], row[1], row[2]); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "(wait: of a buyer, from click to answer)\n\n%s%s\n", r.faultLines(), r.conclusion())
	return err
}

// rows returns the rows of the table: a name, and the cell of each sale.
func (r report) rows() [][3]string {
	row := func(name string, cell func(result) string) [3]string {
		return [3]string{name, cell(r.Unguarded), cell(r.Guarded)}
	}
	count := func(name string, of func(result) int) [3]string {
		return row(name, func(r result) string { return strconv.Itoa(of(r)) })
	}
	wait := func(name string, of func(result) float64) [3]string {
		return row(name, func(r result) string { return fmt.Sprintf("%.1f ms", of(r)) })
	}
	return [][3]string{
		{"", "without lock", "with lock"},
		count("sold", func(r result) int { return r.Sold }),
		count("oversold", func(r result) int { return r.Oversold }),
		count("duplicates", func(r result) int { return r.Duplicates }),
		count("rejected", func(r result) int { return r.Rejected }),
		row("orders/s", func(r result) string { return fmt.Sprintf("%.0f", r.OrdersPerS) }),
		wait("wait p50", func(r result) float64 { return r.WaitP50 }),
		wait("wait p99", func(r result) float64 { return r.WaitP99 }),
	}
}

// faultLines describes what -kill did.
func (r report) faultLines() string {
	f := r.Kill
	if f == nil {
		return ""
	}
	engine := ""
	if e := f.Engine; e != nil {
		engine = fmt.Sprintf("killed under load: %s; the next order came %s. %s\n", e.Killed, e.wentOn(), e.After)
	}
	return fmt.Sprintf(`worker %d was killed while it held the lock; the next order came %.0f ms later.
worker %d was stopped for %.0f ms while it held the lock; its late write: %s.
%s%d clicks got no answer and were repeated.

`, f.Killed.Worker, f.Killed.NextOrder, f.Stopped.Worker, f.Stopped.StoppedFor, f.Stopped.LateWrite, engine, r.Guarded.ClickedAgain)
}

// conclusion returns the report in one line.
func (r report) conclusion() string {
	if len(r.Problems) > 0 {
		return "WRONG with the lock: " + strings.Join(r.Problems, "; ") + "."
	}
	without := "Without the lock nothing went wrong this time, which proves nothing"
	if u := r.Unguarded; u.Oversold > 0 || u.Duplicates > 0 {
		without = fmt.Sprintf("Without the lock %d pieces were sold that do not exist, and %d orders were one too many for their buyer", u.Oversold, u.Duplicates)
	}
	return fmt.Sprintf("%s; with it, exactly %d were sold, one per buyer.", without, r.Guarded.Sold)
}
