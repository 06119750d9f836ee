package interop

import (
	"fmt"
	"io"
	"os"
	"slices"
	"testing"
	"text/tabwriter"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(tabled{m}) }

// tabled prints the figures after the tests.
type tabled struct{ m *testing.M }

func (r tabled) Run() int {
	code := r.m.Run()
	figures.print(os.Stdout)
	return code
}

var figures table

// table collects the measured values for a person to read.
type table struct{ rows []string }

func (f *table) add(peer, kind string, sections int, us, them time.Duration) {
	f.rows = append(f.rows, fmt.Sprintf("%s\t%s\t%d\t%.1f ms\t%.1f ms", peer, kind, sections, inMS(us), inMS(them)))
}

func (f *table) print(out io.Writer) {
	if len(f.rows) == 0 {
		return
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	defer w.Flush()
	fmt.Fprintln(w, "the other client\tkey\talternating sections\tits release wakes us, median\tours wakes it, median")
	for _, row := range f.rows {
		fmt.Fprintln(w, row)
	}
}

func inMS(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func median(all []time.Duration) time.Duration {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)/2]
}
