package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// conformance collects the output of runs of runtime/backends/backendtest, for a table of
// backends and behaviours. The suite prints lines whose fields are separated by tabs:
//
//	backendtest	<harness>	<behaviour>	<checks passed>	<failed>	<declared missing>
//	backendtest	<harness>	<behaviour>	missing	<check>	<ability>	<reason>
//
// The lines are in the output of tests, so go test's cache has them too. Packages that
// are tested in parallel print in any order, so the lines are kept by package.
type conformance map[string][]string

const conformanceMark = "backendtest\t"

// add adds a line of pkg's output, if the suite printed it.
func (c conformance) add(pkg, line string) {
	if fields, ours := strings.CutPrefix(strings.TrimSpace(line), conformanceMark); ours {
		c[pkg] = append(c[pkg], fields)
	}
}

// String returns the table, with the reasons below it, or "" if there are no lines. Rows are in
// the order of the packages' paths, and within a package in the order of the lines.
func (c conformance) String() string {
	var t table
	for _, pkg := range slices.Sorted(maps.Keys(c)) {
		for _, fields := range c[pkg] {
			t.add(strings.Split(fields, "\t"))
		}
	}
	return t.String()
}

// table is the content of the lines.
type table struct {
	harnesses  []string
	behaviours []string
	cells      map[[2]string]*cell
	notes      []*note
}

type cell struct {
	passed, failed, missing int
	notes                   []int // numbers of notes, from 1
}

// note is an ability that a harness lacks.
type note struct {
	harness, ability, reason string
	behaviours               []string            // in the order of the lines
	checks                   map[string][]string // by behaviour
}

// add adds the fields of one line.
func (t *table) add(f []string) {
	switch {
	case len(f) == 6 && f[2] == "missing":
		at := t.cell(f[0], f[1])
		if n := t.note(f[0], f[4], f[5], f[1], f[3]); !slices.Contains(at.notes, n) {
			at.notes = append(at.notes, n)
		}
	case len(f) == 5:
		at := t.cell(f[0], f[1])
		for i, n := range []*int{&at.passed, &at.failed, &at.missing} {
			count, _ := strconv.Atoi(f[2+i])
			*n += count
		}
	}
}

func (t *table) cell(harness, behaviour string) *cell {
	if t.cells == nil {
		t.cells = map[[2]string]*cell{}
	}
	if !slices.Contains(t.harnesses, harness) {
		t.harnesses = append(t.harnesses, harness)
	}
	if !slices.Contains(t.behaviours, behaviour) {
		t.behaviours = append(t.behaviours, behaviour)
	}
	at := t.cells[[2]string{harness, behaviour}]
	if at == nil {
		at = &cell{}
		t.cells[[2]string{harness, behaviour}] = at
	}
	return at
}

func (t *table) note(harness, ability, reason, behaviour, check string) (number int) {
	i := slices.IndexFunc(t.notes, func(n *note) bool {
		return n.harness == harness && n.ability == ability && n.reason == reason
	})
	if i < 0 {
		i = len(t.notes)
		t.notes = append(t.notes, &note{harness: harness, ability: ability, reason: reason, checks: map[string][]string{}})
	}
	n := t.notes[i]
	if !slices.Contains(n.behaviours, behaviour) {
		n.behaviours = append(n.behaviours, behaviour)
	}
	n.checks[behaviour] = append(n.checks[behaviour], check)
	return i + 1
}

// concerns returns the checks that n is about. If n is about every check of a behaviour, the
// name of the behaviour stands for them.
func (t *table) concerns(n *note) string {
	var all []string
	for _, behaviour := range n.behaviours {
		at, checks := t.cell(n.harness, behaviour), n.checks[behaviour]
		if at.passed == 0 && at.failed == 0 && at.missing == len(checks) {
			all = append(all, behaviour)
			continue
		}
		for _, check := range checks {
			all = append(all, behaviour+"/"+check)
		}
	}
	return strings.Join(all, ", ")
}

// notRun is the cell of a behaviour that was not run; if there is one, whyNotRun is printed below the table.
const (
	notRun    = "not run"
	whyNotRun = "not run: -run chose others, or the tests ended before it"
)

func (t *table) String() string {
	if len(t.harnesses) == 0 {
		return ""
	}
	rows := [][]string{append([]string{"backend"}, t.behaviours...)}
	for _, harness := range t.harnesses {
		row := []string{harness}
		for _, behaviour := range t.behaviours {
			row = append(row, t.cells[[2]string{harness, behaviour}].String())
		}
		rows = append(rows, row)
	}
	var b strings.Builder
	b.WriteString("conformance (checks passed; [n]: see below)\n")
	for _, row := range rows {
		var line strings.Builder
		for i, text := range row {
			width := 0
			for _, other := range rows {
				width = max(width, len(other[i]))
			}
			fmt.Fprintf(&line, "%-*s  ", width, text)
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	if strings.Contains(b.String(), notRun) {
		b.WriteString(whyNotRun + "\n")
	}
	for i, n := range t.notes {
		fmt.Fprintf(&b, "[%d] %s: no %s: %s; concerns %s\n", i+1, n.harness, n.ability, n.reason, t.concerns(n))
	}
	return b.String()
}

func (c *cell) String() string {
	if c == nil {
		return notRun
	}
	var b strings.Builder
	switch {
	case c.failed > 0:
		fmt.Fprintf(&b, "%d FAILED", c.failed)
	case c.passed == 0 && c.missing == 0:
		b.WriteString(notRun)
	case c.passed == 0:
		b.WriteString("none")
	default:
		b.WriteString(strconv.Itoa(c.passed))
	}
	for _, n := range c.notes {
		fmt.Fprintf(&b, " [%d]", n)
	}
	return b.String()
}
