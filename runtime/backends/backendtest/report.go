package backendtest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
)

// report has the results of one harness. It prints them in lines that a program can
// find in the output of a run. The fields are separated by tabs:
//
//	backendtest	<harness>	<behaviour>	<checks passed>	<failed>	<declared missing>
//	backendtest	<harness>	<behaviour>	missing	<check>	<ability>	<reason>
type report struct {
	harness string

	mu    sync.Mutex
	cells map[string]*cell
}

type cell struct {
	passed, failed, declared int
	notes                    []string
}

func newReport(harness string) *report {
	return &report{harness: harness, cells: map[string]*cell{}}
}

func (r *report) add(behaviour, check string, missing Ability, reason string, passed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.cells[behaviour]
	if c == nil {
		c = &cell{}
		r.cells[behaviour] = c
	}
	switch {
	case !passed:
		c.failed++
	case missing != "":
		c.declared++
	default:
		c.passed++
	}
	if missing != "" {
		c.notes = append(c.notes, fmt.Sprintf("missing\t%s\t%s\t%s", check, missing, oneLine(reason)))
	}
}

// print writes to t's output, and so into the cache of go test as well.
func (r *report) print(t testing.TB) {
	out := t.Output()
	for _, b := range behaviours() {
		c := r.cells[b.name]
		if c == nil {
			continue // -run excluded it
		}
		fmt.Fprintf(out, "backendtest\t%s\t%s\t%d\t%d\t%d\n", r.harness, b.name, c.passed, c.failed, c.declared)
		slices.Sort(c.notes)
		for _, note := range c.notes {
			fmt.Fprintf(out, "backendtest\t%s\t%s\t%s\n", r.harness, b.name, note)
		}
	}
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
