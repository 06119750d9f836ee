package peers

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/lockgen/lockgen/internal/sim"
)

// Row holds the results of all episodes of one library.
type Row struct {
	Peer               string
	Repeatable         bool // the program was built with the runtime of package goruntime
	Episodes, Sections int
	Cells              []Cell // one for each oracle
	Rates              int    // the sum of the rates of waiters, in requests per second
	Hashes             []uint64
	Virtual, Real      time.Duration
}

// Cell holds the results of one oracle.
type Cell struct {
	Oracle             string
	Findings, Episodes int
	Seed               uint64 // the first seed with a finding; 0 if there is none
	Finding            string // the first finding of that seed
}

// Run runs count seeds from first on with p and returns the sums.
func Run(t *testing.T, p Peer, first, count uint64) Row {
	row := Row{Peer: p.Name(), Repeatable: sim.Repeatable, Cells: make([]Cell, len(Oracles()))}
	for _, o := range Oracles() {
		row.Cells[o].Oracle = o.String()
	}
	begin := time.Now()
	for seed := first; seed < first+count; seed++ {
		row.add(Play(t, p, seed, false))
	}
	row.Real = time.Since(begin)
	return row
}

func (row *Row) add(r *Result) {
	row.Episodes++
	row.Sections += r.Sections
	row.Rates += r.Rate
	row.Virtual += r.Virtual
	row.Hashes = append(row.Hashes, r.Hash)
	bad := map[Oracle]bool{}
	for _, f := range r.Findings {
		c := &row.Cells[f.Oracle]
		c.Findings++
		if !bad[f.Oracle] {
			bad[f.Oracle] = true
			c.Episodes++
		}
		if c.Seed == 0 {
			c.Seed, c.Finding = r.Seed, f.String()
		}
	}
}

// Broken returns the oracles that were broken at least once.
func (row *Row) Broken() (some []Oracle) {
	for _, o := range Oracles() {
		if row.Cells[o].Findings > 0 {
			some = append(some, o)
		}
	}
	return some
}

// Explain writes the first finding of each oracle.
func (row *Row) Explain(out io.Writer) {
	for _, o := range row.Broken() {
		text, _, _ := strings.Cut(row.Cells[o].Finding, "\n")
		fmt.Fprintf(out, "%s seed %d: %s\n", row.Peer, row.Cells[o].Seed, text)
	}
}

// Table writes a line for each row. A cell is how often the oracle was broken, in how
// many episodes, and the first seed that shows it.
func Table(out io.Writer, rows []Row) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	head := []string{"library", "episodes", "sections"}
	for _, o := range Oracles() {
		head = append(head, o.String())
	}
	fmt.Fprintln(w, strings.Join(append(head, "a waiter's requests/s", "real time"), "\t"))
	for _, row := range rows {
		line := []string{row.Peer, strconv.Itoa(row.Episodes), strconv.Itoa(row.Sections)}
		for _, c := range row.Cells {
			cell := "0"
			if c.Findings > 0 {
				cell = fmt.Sprintf("%d in %d, #%d", c.Findings, c.Episodes, c.Seed)
			}
			line = append(line, cell)
		}
		line = append(line, fmt.Sprintf("%.1f", float64(row.Rates)/float64(max(row.Episodes, 1))), row.Real.Round(time.Second/10).String())
		fmt.Fprintln(w, strings.Join(line, "\t"))
	}
	return w.Flush()
}
