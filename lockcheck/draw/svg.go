package draw

import (
	"fmt"
	"html"
	"strings"
)

const widest = 1600.0 // a row of parts gets no wider, unless it has a single part

// style has the colours of a light page and of a dark one. A text is drawn above what is behind it.
const style = `<style>
text{fill:#1d2740}.quiet{fill:#556}.paper{fill:#fff}.box{fill:#eef3fb;stroke:#33415c}.line{stroke:#33415c}.tip{fill:#33415c}
.label{fill:#33415c;stroke:#fff}.bad .box,.bad.box{fill:#fdecec;stroke:#d11a2a}.bad.line{stroke:#d11a2a}.bad.tip,.bad.label{fill:#d11a2a}
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.quiet{fill:#a9b4c2}.paper{fill:#0d1117}.box{fill:#1b2433;stroke:#8fa3c4}.line{stroke:#8fa3c4}.tip{fill:#8fa3c4}
.label{fill:#b7c4dc;stroke:#0d1117}.bad .box,.bad.box{fill:#3a1618;stroke:#ff6b73}.bad.line{stroke:#ff6b73}.bad.tip,.bad.label{fill:#ff6b73}}
</style>
`

// SVG returns the graph as a picture. Parts that no edge connects are drawn side by side.
func (g *Graph) SVG() string {
	return g.svg(fmt.Sprintf("<title>%s</title>\n%s", html.EscapeString(g.Title), style), "")
}

// Inline is SVG for use inside an HTML page. It has no colours: the page's style sheet sets them
// by the classes text, quiet, paper, box, line, tip, label and bad. label describes the picture
// for screen readers. A page may have only one.
func (g *Graph) Inline(label string) string {
	return g.svg("", fmt.Sprintf(` role="img" aria-label="%s"`, html.EscapeString(label)))
}

func (g *Graph) svg(head, attributes string) string {
	var body strings.Builder
	x, y, width, row := 0.0, titleHeight, 0.0, 0.0
	for _, part := range g.parts() {
		l := newLayout(part)
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
	legend := g.legend()
	w, h := max(width, 480), y+row+float64(len(legend)+1)*lineHeight
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" viewBox="0 0 %.0f %.0f" font-family="sans-serif" font-size="12"%s>`+"\n", w, h, w, h, attributes)
	b.WriteString(head + "<defs>\n")
	for _, a := range []struct{ id, class string }{{"arrow", "tip"}, {"bad", "tip bad"}} {
		fmt.Fprintf(&b, `<marker id="%s" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="9" markerHeight="9" markerUnits="userSpaceOnUse" orient="auto"><path d="M0,0 L10,5 L0,10 z" class="%s"/></marker>`+"\n", a.id, a.class)
	}
	fmt.Fprintf(&b, "</defs>\n"+`<rect width="%.0f" height="%.0f" class="paper"/>`+"\n", w, h)
	fmt.Fprintf(&b, `<text x="%d" y="22" font-size="15" font-weight="bold">%s</text>`+"\n", padding, html.EscapeString(g.Title))
	b.WriteString(body.String())
	for i, s := range legend {
		at := y + row + float64(i+1)*lineHeight
		fmt.Fprintf(&b, `<path d="M%d,%.1f h34" %s/>`+"\n", padding, at-4, s.edge.line())
		fmt.Fprintf(&b, `<text x="%d" y="%.1f" class="quiet" font-size="11">%s</text>`+"\n", padding+44, at, html.EscapeString(s.text))
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// titleHeight is the room above the graph.
const titleHeight = 32.0

// line returns the attributes of an edge's path.
func (e Edge) line() string {
	tip := `marker-end="url(#arrow)"`
	switch {
	case e.Together:
		tip = `stroke-dasharray="1.5,4" stroke-linecap="round"`
	case e.Bad:
		tip = `marker-end="url(#bad)"`
	}
	return fmt.Sprintf(`class="line%s" fill="none" stroke-width="%s"%s %s`, pick(e.Bad, " bad", ""), pick(e.Bad || e.Together, "2", "1.2"), pick(e.Try, ` stroke-dasharray="5,4"`, ""), tip)
}

// overhang returns the room that labels need outside the outermost edges.
func (g *Graph) overhang() float64 {
	longest := 0
	for _, e := range g.Edges {
		longest = max(longest, len([]rune(e.label())))
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
		// Labels of several edges between the same nodes have different heights.
		l.edge(b, r, ports[i], float64((nth+1)/2*(1-nth%2*2)*21))
	}
	for _, v := range l.nodes {
		l.node(b, v)
	}
}

// parts returns the subgraphs that no edge connects, in the order of their first nodes.
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
	if n.Link != "" {
		fmt.Fprintf(b, `<a href="%s">`, html.EscapeString(n.Link))
		defer b.WriteString("</a>\n")
	}
	fmt.Fprintf(b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="6" class="box%s"/>`+"\n", v.x-v.w/2, v.y, v.w, v.h, pick(n.Bad, " bad", ""))
	bold := len(wrap(n.texts()[0]))
	for i, line := range n.lines() {
		style := ` class="quiet"`
		if i < bold {
			style = ` font-weight="bold"`
		}
		fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="middle"%s>%s</text>`+"\n", v.x, v.y+padding/2+float64(i+1)*lineHeight-5, style, html.EscapeString(line))
	}
}

// longestLabel is how many letters of an edge's label are drawn. A tooltip shows all.
const longestLabel = 44

func (e Edge) label() string {
	if text := []rune(e.Label); len(text) > longestLabel {
		return string(text[:longestLabel-1]) + "…"
	}
	return e.Label
}

// edge draws a curve through the stops, between the two ports.
func (l *layout) edge(b *strings.Builder, r route, ports [2]float64, lower float64) {
	e := l.g.Edges[r.edge]
	path, x, y := l.path(r, ports)
	fmt.Fprintf(b, `<path d="%s" %s/>`+"\n", path, e.line())
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="middle" font-size="10" class="label%s" paint-order="stroke" stroke-width="3">%s<title>%s</title></text>`+"\n",
		x, y+lower, pick(e.Bad, " bad", ""), html.EscapeString(e.label()), html.EscapeString(e.Label))
}

// path returns the curve of an edge, and the place of its label.
func (l *layout) path(r route, ports [2]float64) (d string, x, y float64) {
	from, to := r.stops[0], r.stops[len(r.stops)-1]
	if len(r.stops) == 1 { // the edge leads back to its node
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
