package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/lockgen/lockgen/bench/peers"
)

// summary writes one table of all workloads: a row for each of their most important
// columns, a column for each peer, medians only. With an earlier build of lockgen the
// last column is the ratio between the two builds.
func (r *report) summary(text *strings.Builder) {
	var names []string
	before := ""
	for _, p := range r.Peers {
		names = append(names, p.Name)
		if strings.HasPrefix(p.Name, peers.Ours+"@") {
			before = p.Name
		}
	}
	titles := names
	if before != "" {
		titles = append(slices.Clip(names), peers.Ours+" / "+before)
	}
	fmt.Fprintf(text, "| | %s |\n|---|%s\n", strings.Join(titles, " | "), strings.Repeat("---|", len(titles)))
	for _, pt := range r.Parts {
		for _, c := range pt.summary {
			fmt.Fprintf(text, "| %s, %s |", pt.Workload, c.title)
			for _, name := range names {
				cell := ""
				if v, ok := pt.of(name, c.name); ok {
					cell = c.show(v)
				}
				fmt.Fprintf(text, " %s |", cell)
			}
			now, ok := pt.of(peers.Ours, c.name)
			then, also := pt.of(before, c.name)
			switch {
			case ok && also && then != 0:
				fmt.Fprintf(text, " %s |", decimal(now/then))
			case before != "":
				text.WriteString(" |")
			}
			text.WriteString("\n")
		}
	}
}

// writeInto replaces the text of file between the markers of the engine and its network.
func (r *report) writeInto(file string) error {
	network := ""
	if r.RTT != "" {
		network = " " + r.RTT
	}
	begin := fmt.Sprintf("<!-- figures %s%s -->\n", r.Engine, network)
	const end = "<!-- end -->\n"
	old, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	head, rest, ok := strings.Cut(string(old), begin)
	_, tail, also := strings.Cut(rest, end)
	if !ok || !also {
		return fmt.Errorf("%s lacks the lines %q and %q", file, begin, end)
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%s%s%s.\n\n", head, begin, r.conditions())
	r.summary(&text)
	text.WriteString(end + tail)
	return os.WriteFile(file, []byte(text.String()), 0o644)
}
