package module

import (
	"cmp"
	"slices"
	"strings"

	"github.com/lockgen/lockgen/lockcheck/draw"
	"github.com/lockgen/lockgen/lockcheck/internal/facts"
)

// Graph is the lock graph of the packages and of what they build on: one node for all
// templates of one class, one edge for each method under whose lock another is taken.
func (r *Result) Graph() *draw.Graph {
	g := &draw.Graph{}
	index := map[string]int{}
	node := func(l *facts.Lock) *draw.Node {
		class := l.Class()
		if _, ok := index[class]; !ok {
			index[class] = len(g.Nodes)
			g.Nodes = append(g.Nodes, draw.Node{Key: l.Key, Kind: "exclusive"})
		}
		return &g.Nodes[index[class]]
	}
	locks := r.graph.Locks()
	slices.SortStableFunc(locks, func(a, b facts.Lock) int { return cmp.Compare(a.Key, b.Key) })
	for _, l := range locks {
		n := node(&l)
		if l.Read || l.Write {
			n.Kind = "read-write"
		}
		if l.Backend != "" {
			n.Kind = "backend=" + l.Backend
		}
		if !slices.Contains(n.Methods, l.Method) {
			n.Methods = append(n.Methods, l.Method)
		}
	}
	bad := map[string]bool{}
	for _, c := range r.graph.Cycles() {
		for _, e := range c {
			bad[e.Held.Class()+"\x01"+e.To.Class()] = true
		}
	}
	edges := map[[2]int]int{}
	for _, e := range r.graph.Edges() {
		node(&e.Held)
		node(&e.To)
		pair := [2]int{index[e.Held.Class()], index[e.To.Class()]}
		at, known := edges[pair]
		if !known {
			at = len(g.Edges)
			edges[pair] = at
			g.Edges = append(g.Edges, draw.Edge{From: pair[0], To: pair[1], Try: true})
		}
		edge := &g.Edges[at]
		edge.Label = join(edge.Label, e.Root.Name)
		edge.Try = edge.Try && e.To.Try
		if bad[e.Held.Class()+"\x01"+e.To.Class()] {
			edge.Bad, g.Nodes[pair[0]].Bad, g.Nodes[pair[1]].Bad = true, true, true
		}
	}
	return g
}

// join lists names, each once.
func join(list, name string) string {
	if list == "" {
		return name
	}
	if slices.Contains(strings.Split(list, ", "), name) {
		return list
	}
	return list + ", " + name
}
