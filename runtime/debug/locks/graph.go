package locks

import (
	"fmt"
	"html/template"

	"github.com/lockgen/lockgen/lockcheck/draw"
	lock "github.com/lockgen/lockgen/runtime"
)

// ordersPage is the section of the page with the locks that are taken inside of others.
type ordersPage struct {
	list[orderRow]
	Graph template.HTML // of the lines
}

func ordersPageOf(all *lock.Snapshot, lines list[orderRow]) ordersPage {
	return ordersPage{lines, graphOf(all, lines.Lines)}
}

// graphOf draws the orders of lines, with the number of holds and waits of each pattern. Package
// draw escapes text that users wrote.
func graphOf(all *lock.Snapshot, lines []orderRow) template.HTML {
	if len(lines) == 0 {
		return ""
	}
	holds, waiters := byPattern(all)
	g, places := &draw.Graph{}, map[label]int{}
	node := func(pattern, backend string, bad bool) int {
		of := label{pattern: pattern, backend: backend}
		at, ok := places[of]
		if !ok {
			at = len(g.Nodes)
			places[of] = at
			key := pattern
			if key == "" {
				key = "no pattern"
			}
			if backend != "" {
				key += " at " + backend
			}
			g.Nodes = append(g.Nodes, draw.Node{Key: key, Methods: []string{fmt.Sprintf("%d held, %d waiting", holds[of], waiters[of])}})
		}
		g.Nodes[at].Bad = g.Nodes[at].Bad || bad
		return at
	}
	for _, o := range lines {
		g.Edges = append(g.Edges, draw.Edge{
			From: node(o.Outer, o.OuterBackend, o.Cycle), To: node(o.Inner, o.InnerBackend, o.Cycle),
			Label: fmt.Sprintf("%d ×", o.Count), Bad: o.Cycle,
		})
	}
	return template.HTML(g.Inline("The orders of the table below as a graph of patterns."))
}
