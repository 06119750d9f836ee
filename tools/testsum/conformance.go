package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// conformance is what runs of runtime/backends/backendtest have said: a table,
// backend by behaviour. The suite prints lines whose fields are parted by tabs:
//
//	backendtest	<harness>	<behaviour>	<checks passed>	<failed>	<declared missing>
//	backendtest	<harness>	<behaviour>	missing	<check>	<ability>	<reason>
//
// They are in the output of tests, so go test's cache has them too.
type conformance struct {
	harnesses  []string
	behaviours []string
	cells      map[[2]string]*cell
	notes      []*note
}

type cell struct {
	passed, failed, missing int
	notes                   []int // numbers, from 1
}

// note is one thing that one harness lacks.
type note struct {
	harness, ability, reason string
	checks                   []string
}

const conformanceMark = "backendtest\t"

// add takes in a line of output, if it is one of the suite's.
func (c *conformance) add(line string) {
	fields, ours := strings.CutPrefix(strings.TrimSpace(line), conformanceMark)
	if !ours {
		return
	}
	f := strings.Split(fields, "\t")
	switch {
	case len(f) == 6 && f[2] == "missing":
		at := c.cell(f[0], f[1])
		if n := c.note(f[0], f[4], f[5], f[1]+"/"+f[3]); !slices.Contains(at.notes, n) {
			at.notes = append(at.notes, n)
		}
	case len(f) == 5:
		at := c.cell(f[0], f[1])
		for i, n := range []*int{&at.passed, &at.failed, &at.missing} {
			count, _ := strconv.Atoi(f[2+i])
			*n += count
		}
	}
}

func (c *conformance) cell(harness, behaviour string) *cell {
	if c.cells == nil {
		c.cells = map[[2]string]*cell{}
	}
	if !slices.Contains(c.harnesses, harness) {
		c.harnesses = append(c.harnesses, harness)
	}
	if !slices.Contains(c.behaviours, behaviour) {
		c.behaviours = append(c.behaviours, behaviour)
	}
	at := c.cells[[2]string{harness, behaviour}]
	if at == nil {
		at = &cell{}
		c.cells[[2]string{harness, behaviour}] = at
	}
	return at
}

func (c *conformance) note(harness, ability, reason, check string) (number int) {
	i := slices.IndexFunc(c.notes, func(n *note) bool {
		return n.harness == harness && n.ability == ability && n.reason == reason
	})
	if i < 0 {
		i = len(c.notes)
		c.notes = append(c.notes, &note{harness: harness, ability: ability, reason: reason})
	}
	c.notes[i].checks = append(c.notes[i].checks, check)
	return i + 1
}

// notRun stands where a behaviour was not tried: chosen away by -run, or the
// run broke off.
const notRun = "not run"

// String returns the table, its reasons below it, or nothing.
func (c *conformance) String() string {
	if len(c.harnesses) == 0 {
		return ""
	}
	rows := [][]string{append([]string{"backend"}, c.behaviours...)}
	for _, harness := range c.harnesses {
		row := []string{harness}
		for _, behaviour := range c.behaviours {
			row = append(row, c.cells[[2]string{harness, behaviour}].String())
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
	for i, n := range c.notes {
		fmt.Fprintf(&b, "[%d] %s: no %s: %s; concerns %s\n", i+1, n.harness, n.ability, n.reason, strings.Join(n.checks, ", "))
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
