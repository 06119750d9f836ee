package module

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lockgen/lockgen/lockcheck/draw"
	"github.com/lockgen/lockgen/lockcheck/internal/facts"
)

// nth is a node: the first lock of a class in a method, the second one, and so on.
type nth struct {
	class string
	n     int
}

// Graph returns the lock graph of the packages and of their imports. It has one node for all
// templates of one class, and another for the second template of the class in one method. It has
// one edge for each pair of locks of which one is taken under the other, and one between the locks
// of a method with several. place returns the name of a file for the links.
func (r *Result) Graph(place func(file string) string) *draw.Graph {
	g := &draw.Graph{Title: "Locks and their order"}
	index, later := map[nth]int{}, r.later()
	at := func(l *facts.Lock) int {
		id := nth{l.Class(), later[l.Pos]}
		if _, ok := index[id]; !ok {
			index[id] = len(g.Nodes)
			g.Nodes = append(g.Nodes, draw.Node{Key: l.Key, Kind: "exclusive", Link: link(l, place)})
		}
		return index[id]
	}
	locks := r.graph.Locks()
	slices.SortStableFunc(locks, func(a, b facts.Lock) int { return cmp.Compare(a.Key, b.Key) })
	for _, l := range locks {
		n := &g.Nodes[at(&l)]
		if l.Read || l.Write {
			n.Kind = "read-write"
		}
		if l.Kind == "permits" {
			n.Kind = l.Kind
		}
		if l.Backend != "" {
			n.Kind = "backend=" + l.Backend
		}
		if text := l.Method + ": " + l.Items; !slices.Contains(n.Methods, text) {
			n.Methods = append(n.Methods, text)
		}
	}
	r.together(g, at)
	bad := map[string]bool{}
	for _, c := range r.graph.Cycles() {
		for _, e := range c {
			bad[e.Held.Class()+"\x01"+e.To.Class()] = true
		}
	}
	edges := map[[2]int]int{}
	for _, e := range r.graph.Edges() {
		pair := [2]int{at(&e.Held), at(&e.To)}
		i, known := edges[pair]
		if !known {
			i = len(g.Edges)
			edges[pair] = i
			g.Edges = append(g.Edges, draw.Edge{From: pair[0], To: pair[1], Try: true})
		}
		edge := &g.Edges[i]
		edge.Label = join(edge.Label, e.Root.Name)
		edge.Try = edge.Try && e.To.Try
		if bad[e.Held.Class()+"\x01"+e.To.Class()] {
			edge.Bad, g.Nodes[pair[0]].Bad, g.Nodes[pair[1]].Bad = true, true, true
		}
	}
	return g
}

// later returns how many earlier directives of the same method are of the same class.
func (r *Result) later() map[facts.Position]int {
	out := map[facts.Position]int{}
	for _, s := range r.graph.Summaries {
		for _, f := range s.Funcs {
			before := map[string]int{}
			for _, l := range f.Guard {
				out[l.Pos] = before[l.Class()]
				before[l.Class()]++
			}
		}
	}
	return out
}

// together connects the locks of each method that has several. These are taken in the same order
// everywhere, so the edges have no direction.
func (r *Result) together(g *draw.Graph, at func(*facts.Lock) int) {
	edges := map[[2]int]int{}
	for _, s := range r.graph.Summaries {
		for _, f := range s.Funcs {
			for i := range f.Guard {
				for j := range f.Guard[:i] {
					a, b := at(&f.Guard[j]), at(&f.Guard[i])
					pair := [2]int{min(a, b), max(a, b)}
					if a == b {
						continue
					}
					edge, known := edges[pair]
					if !known {
						edge = len(g.Edges)
						edges[pair] = edge
						g.Edges = append(g.Edges, draw.Edge{From: pair[0], To: pair[1], Together: true})
					}
					g.Edges[edge].Label = join(g.Edges[edge].Label, f.Guard[i].Method)
				}
			}
		}
	}
	slices.SortStableFunc(g.Edges, func(a, b draw.Edge) int {
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To))
	})
}

// link returns a link to the line of the directive, in the form that code hosts use.
func link(l *facts.Lock, place func(string) string) string {
	return fmt.Sprintf("%s#L%d", filepath.ToSlash(place(l.Pos.File)), l.Pos.Line) // part of a URL
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
