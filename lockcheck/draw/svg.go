package draw

import (
	"fmt"
	"html"
	"strings"
)

const widest = 1600.0 // of a row of parts

// colours are those of a picture: of lines and text, of text that matters less, of what is in
// a cycle, of nodes, and of what is behind.
type colours struct{ ink, text, soft, bad, node, badNode, ground string }

var (
	paper = colours{ink: "#33415c", text: "black", soft: "#556", bad: "#d11a2a", node: "#eef3fb", badNode: "#fdecec", ground: "white"}
	page  = colours{ink: "var(--soft)", text: "var(--ink)", soft: "var(--soft)", bad: "var(--bad)", node: "var(--head)", badNode: "var(--head)", ground: "var(--ground)"}
)

// SVG is the graph as a picture, laid out by this package: parts that no edge joins
// side by side.
func (g *Graph) SVG() string { return g.svg(paper, "") }

// Inline is SVG for a page of HTML, which it is a part of: its colours are the page's
// properties --ink, --soft, --bad, --head and --ground, and label says what it shows to who does
// not see it. A page has one at most.
func (g *Graph) Inline(label string) string {
	return g.svg(page, fmt.Sprintf(` role="img" aria-label="%s"`, html.EscapeString(label)))
}

func (g *Graph) svg(c colours, attributes string) string {
	var body strings.Builder
	x, y, width, row := 0.0, 0.0, 0.0, 0.0
	for _, part := range g.parts() {
		l := newLayout(part)
		l.colours = c
		if x > 0 && x+l.w > widest {
			x, y, row = 0, y+row, 0
		}
		left := x + part.overhang()
		fmt.Fprintf(&body, `<g transform="translate(%.1f,%.1f)">`+"\n", left, y)
		l.draw(&body)
		body.WriteString("</g>\n")
		x = left + l.w + part.overhang()
		width, row = max(width, x), max(row, l.h)
	}
	w, h := max(width, 480), y+row+28
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" viewBox="0 0 %.0f %.0f" font-family="sans-serif" font-size="12"%s>`+"\n", w, h, w, h, attributes)
	b.WriteString("<defs>\n")
	for _, a := range []struct{ id, color string }{{"arrow", c.ink}, {"bad", c.bad}} {
		fmt.Fprintf(&b, `<marker id="%s" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="9" markerHeight="9" markerUnits="userSpaceOnUse" orient="auto"><path d="M0,0 L10,5 L0,10 z" fill="%s"/></marker>`+"\n", a.id, a.color)
	}
	fmt.Fprintf(&b, "</defs>\n"+`<rect width="%.0f" height="%.0f" fill="%s"/>`+"\n", w, h, c.ground)
	b.WriteString(body.String())
	fmt.Fprintf(&b, `<text x="%d" y="%.0f" fill="%s" font-size="11">A -&gt; B: B is taken while A is held. Red: orders that contradict each other.</text>`+"\n", padding, h-10, c.soft)
	b.WriteString("</svg>\n")
	return b.String()
}

// overhang is the room that labels need beside the outermost edges.
func (g *Graph) overhang() float64 {
	longest := 0
	for _, e := range g.Edges {
		longest = max(longest, len([]rune(e.Label)))
	}
	return float64(longest) * letter / 3
}

func (l *layout) draw(b *strings.Builder) {
	parallel, ports := map[[2]int]int{}, l.ports()
	for i, r := range l.routes {
		e := l.g.Edges[r.edge]
		pair := [2]int{min(e.From, e.To), max(e.From, e.To)}
		nth := parallel[pair]
		parallel[pair]++
		// Several ways between the same nodes have their labels at different heights.
		l.edge(b, r, ports[i], float64((nth+1)/2*(1-nth%2*2)*21))
	}
	for _, v := range l.nodes {
		l.node(b, v)
	}
}

// parts are the subgraphs that no edge joins, in the order of their first nodes.
func (g *Graph) parts() []*Graph {
	of := make([]int, len(g.Nodes))
	for i := range of {
		of[i] = i
	}
	for range g.Nodes {
		for _, e := range g.Edges {
			least := min(of[e.From], of[e.To])
			of[e.From], of[e.To] = least, least
		}
	}
	var out []*Graph
	at := map[int]*Graph{}
	place := make([]int, len(g.Nodes))
	for i, n := range g.Nodes {
		part := at[of[i]]
		if part == nil {
			part = &Graph{}
			at[of[i]] = part
			out = append(out, part)
		}
		place[i] = len(part.Nodes)
		part.Nodes = append(part.Nodes, n)
	}
	for _, e := range g.Edges {
		part := at[of[e.From]]
		e.From, e.To = place[e.From], place[e.To]
		part.Edges = append(part.Edges, e)
	}
	return out
}

func (l *layout) node(b *strings.Builder, v *vertex) {
	n := l.g.Nodes[v.node]
	stroke, fill := l.colours.ink, l.colours.node
	if n.Bad {
		stroke, fill = l.colours.bad, l.colours.badNode
	}
	fmt.Fprintf(b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="6" fill="%s" stroke="%s"/>`+"\n", v.x-v.w/2, v.y, v.w, v.h, fill, stroke)
	for i, line := range n.lines() {
		style := ` fill="` + l.colours.soft + `"`
		if i == 0 {
			style = ` font-weight="bold" fill="` + l.colours.text + `"`
		}
		fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="middle"%s>%s</text>`+"\n", v.x, v.y+padding/2+float64(i+1)*lineHeight-5, style, html.EscapeString(line))
	}
}

// edge draws a curve through the stops, between the two ports.
func (l *layout) edge(b *strings.Builder, r route, ports [2]float64, lower float64) {
	e := l.g.Edges[r.edge]
	color, marker := l.colours.ink, "arrow"
	if e.Bad {
		color, marker = l.colours.bad, "bad"
	}
	dash := pick(e.Try, ` stroke-dasharray="5,4"`, "")
	path, x, y := l.path(r, ports)
	fmt.Fprintf(b, `<path d="%s" fill="none" stroke="%s" stroke-width="%s"%s marker-end="url(#%s)"/>`+"\n", path, color, pick(e.Bad, "2", "1.2"), dash, marker)
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="middle" font-size="10" fill="%s" paint-order="stroke" stroke="%s" stroke-width="3">%s</text>`+"\n", x, y+lower, color, l.colours.ground, html.EscapeString(e.Label))
}

// path is the curve of an edge, and where its label goes.
func (l *layout) path(r route, ports [2]float64) (d string, x, y float64) {
	from, to := r.stops[0], r.stops[len(r.stops)-1]
	if len(r.stops) == 1 { // back to the node itself
		right, middle := from.x+from.w/2, from.y+from.h/2
		return fmt.Sprintf("M%.1f,%.1f C%.1f,%.1f %.1f,%.1f %.1f,%.1f", right, middle-8, right+40, middle-24, right+40, middle+24, right, middle+8), right + 46, middle + 4
	}
	down := to.layer > from.layer
	var b strings.Builder
	px, py := ports[0], edgeY(from, down)
	fmt.Fprintf(&b, "M%.1f,%.1f", px, py)
	for i, stop := range r.stops[1:] {
		qx, qy := stop.x, stop.y
		if stop == to {
			qx, qy = ports[1], edgeY(to, !down)
		}
		middle := (py + qy) / 2
		fmt.Fprintf(&b, " C%.1f,%.1f %.1f,%.1f %.1f,%.1f", px, middle, qx, middle, qx, qy)
		if i == (len(r.stops)-1)/2 {
			x, y = (px+qx)/2, middle+3
		}
		px, py = qx, qy
	}
	return b.String(), x, y
}

func edgeY(v *vertex, bottom bool) float64 {
	if bottom {
		return v.y + v.h
	}
	return v.y
}
