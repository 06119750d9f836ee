package draw

import (
	"cmp"
	"slices"
	"strings"
)

// The layout is Sugiyama's. Edges that close a cycle are reversed. Nodes are put in layers so that
// all edges point down. A long edge gets a stop in each layer that it crosses. Each layer is sorted
// by the positions of its neighbours, until few edges cross. Then each vertex moves towards the x
// of its neighbours as far as there is room.

const (
	lineHeight = 18
	letter     = 7.3 // the approximate width of a letter at 12 px
	padding    = 12
	gapX       = 44
	gapY       = 78
)

// vertex is a node, or the stop of a long edge.
type vertex struct {
	node     int // -1 for a stop
	layer    int
	x, y     float64 // the middle, and the top
	w, h     float64
	up, down []*vertex
}

// route is the way of an edge over the layers, from its start.
type route struct {
	edge  int
	stops []*vertex
}

type layout struct {
	g      *Graph
	nodes  []*vertex
	layers [][]*vertex
	routes []route
	w, h   float64
}

// textWidth returns the room of a line at 12 px, bold, in any usual font: rather too much than too
// little.
func textWidth(line string) (w float64) {
	for _, r := range line {
		switch {
		case r >= 0x2e80: // East Asian scripts
			w += 13
		case r >= 'A' && r <= 'Z' || strings.ContainsRune("mw@%&", r):
			w += 10.5
		default:
			w += letter
		}
	}
	return w
}

func newLayout(g *Graph) *layout {
	l := &layout{g: g}
	for i, n := range g.Nodes {
		v := &vertex{node: i}
		for _, line := range n.lines() {
			v.w = max(v.w, textWidth(line))
		}
		v.w += 2 * padding
		v.h = float64(len(n.lines()))*lineHeight + padding
		l.nodes = append(l.nodes, v)
	}
	turned := l.turned()
	l.rank(turned)
	l.stops(turned)
	for range 8 {
		l.sweep(func(v *vertex) []*vertex { return v.up })
		slices.Reverse(l.layers)
		l.sweep(func(v *vertex) []*vertex { return v.down })
		slices.Reverse(l.layers)
	}
	l.place()
	return l
}

// turned returns the edges to reverse, so that no cycle is left.
func (l *layout) turned() []bool {
	out := make([]bool, len(l.g.Edges))
	state := make([]int, len(l.g.Nodes)) // 1: on the path; 2: done
	var visit func(n int)
	visit = func(n int) {
		state[n] = 1
		for i, e := range l.g.Edges {
			if e.From != n {
				continue
			}
			if state[e.To] == 1 {
				out[i] = true
			} else if state[e.To] == 0 {
				visit(e.To)
			}
		}
		state[n] = 2
	}
	for n := range l.g.Nodes {
		if state[n] == 0 {
			visit(n)
		}
	}
	return out
}

func ends(e Edge, turned bool) (from, to int) {
	if turned {
		return e.To, e.From
	}
	return e.From, e.To
}

// rank puts each node below all nodes with an edge to it.
func (l *layout) rank(turned []bool) {
	for range l.nodes { // as many rounds as the longest path has nodes
		for i, e := range l.g.Edges {
			if from, to := ends(e, turned[i]); from != to {
				l.nodes[to].layer = max(l.nodes[to].layer, l.nodes[from].layer+1)
			}
		}
	}
	for _, v := range l.nodes {
		l.add(v)
	}
}

func (l *layout) add(v *vertex) {
	for len(l.layers) <= v.layer {
		l.layers = append(l.layers, nil)
	}
	l.layers[v.layer] = append(l.layers[v.layer], v)
}

// stops splits the edges into pieces that each cross one layer.
func (l *layout) stops(turned []bool) {
	for i, e := range l.g.Edges {
		from, to := ends(e, turned[i])
		at := l.nodes[from]
		r := route{edge: i, stops: []*vertex{at}}
		link := func(v *vertex) {
			at.down, v.up = append(at.down, v), append(v.up, at)
			r.stops, at = append(r.stops, v), v
		}
		if from != to {
			for layer := l.nodes[from].layer + 1; layer < l.nodes[to].layer; layer++ {
				stop := &vertex{node: -1, layer: layer, w: 12}
				l.add(stop)
				link(stop)
			}
			link(l.nodes[to])
		}
		if turned[i] {
			slices.Reverse(r.stops)
		}
		l.routes = append(l.routes, r)
	}
}

// sweep orders each layer by the middle of its neighbours in the layer before it.
func (l *layout) sweep(neighbours func(*vertex) []*vertex) {
	for _, layer := range l.layers {
		l.number()
		weight := map[*vertex]float64{}
		for _, v := range layer {
			weight[v] = mean(neighbours(v), v.x)
		}
		slices.SortStableFunc(layer, func(a, b *vertex) int { return cmp.Compare(weight[a], weight[b]) })
	}
}

// number sets x to the index within the layer, for sorting.
func (l *layout) number() {
	for _, layer := range l.layers {
		for i, v := range layer {
			v.x = float64(i) - float64(len(layer)-1)/2
		}
	}
}

func mean(list []*vertex, otherwise float64) float64 {
	if len(list) == 0 {
		return otherwise
	}
	sum := 0.0
	for _, v := range list {
		sum += v.x
	}
	return sum / float64(len(list))
}

// place sets the position of each vertex: first next to each other, then below their neighbours.
func (l *layout) place() {
	y := float64(padding)
	for _, layer := range l.layers {
		x, height := 0.0, 0.0
		for _, v := range layer {
			v.x = x + v.w/2
			x += v.w + gapX
			height = max(height, v.h)
		}
		for _, v := range layer {
			v.x -= x / 2
			v.y = y + (height-v.h)/2
		}
		y += height + gapY
	}
	l.h = y - gapY + padding
	for i := range 12 {
		for _, layer := range l.layers {
			for _, v := range layer {
				if i%2 == 0 {
					v.x = mean(v.up, v.x)
				} else {
					v.x = mean(v.down, v.x)
				}
			}
			part(layer)
		}
	}
	l.shift()
}

// part moves the vertices of a layer apart, equally to both sides.
func part(layer []*vertex) {
	for i := len(layer)/2 + 1; i < len(layer); i++ {
		layer[i].x = max(layer[i].x, layer[i-1].x+room(layer[i-1], layer[i]))
	}
	for i := len(layer)/2 - 1; i >= 0; i-- {
		layer[i].x = min(layer[i].x, layer[i+1].x-room(layer[i], layer[i+1]))
	}
}

func room(a, b *vertex) float64 { return (a.w+b.w)/2 + gapX }

// shift moves the picture to its left edge.
func (l *layout) shift() {
	left, right := 0.0, 0.0
	for i, layer := range l.layers {
		for j, v := range layer {
			if i == 0 && j == 0 {
				left, right = v.x-v.w/2, v.x+v.w/2
			}
			left, right = min(left, v.x-v.w/2), max(right, v.x+v.w/2)
		}
	}
	for _, layer := range l.layers {
		for _, v := range layer {
			v.x += padding - left
		}
	}
	l.w = right - left + 2*padding
}
